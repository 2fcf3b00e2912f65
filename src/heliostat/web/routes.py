"""Routes of the web interface."""

import importlib
import pkgutil

from fastapi import APIRouter, Depends, FastAPI
from fastapi.routing import APIRoute

from heliostat.services.context import Context
from heliostat.web import assets, live_updates, login, pages, refresh_rate
from heliostat.web.rendering import FlashMessages
from heliostat.web.request_context import read_verified_form


def install_web(app: FastAPI, context: Context) -> None:
    """Set up the state and middleware that the pages need."""
    app.state.flashes = FlashMessages()
    app.state.live = live_updates.LiveUpdateHub(context)
    app.state.served = frozenset(route_paths("GET"))
    app.add_middleware(refresh_rate.SerialRefreshMiddleware, limiter=app.state.live.refresh_rate)


def include_page_routers(root: APIRouter) -> None:
    """Every page that changes something depends on `read_verified_form`, which checks its CSRF token."""
    root.include_router(assets.router)
    root.include_router(login.unverified_router, include_in_schema=False)
    for router in page_routers():
        root.include_router(router, dependencies=[Depends(read_verified_form)], include_in_schema=False)


def page_routers() -> list[APIRouter]:
    """The routers of all modules of `pages`."""
    names = sorted(module.name for module in pkgutil.iter_modules(pages.__path__))
    modules = [importlib.import_module(f"{pages.__name__}.{name}") for name in names]
    return [live_updates.router, login.router, *(module.router for module in modules)]


def route_paths(method: str) -> list[str]:
    """Paths of the pages for this method, with parameter names in braces."""
    routes = [route for router in page_routers() for route in router.routes]
    return [route.path for route in routes if isinstance(route, APIRoute) and method in (route.methods or ())]
