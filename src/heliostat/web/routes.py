"""Puts the web into the application."""

import importlib
import pkgutil

from fastapi import APIRouter, Depends, FastAPI
from fastapi.routing import APIRoute

from heliostat.services.context import Context
from heliostat.web import assets, live_updates, login, pages, refresh_rate
from heliostat.web.rendering import FlashMessages
from heliostat.web.request_context import read_verified_form


def install_web(app: FastAPI, context: Context) -> None:
    """What the pages need besides their routes."""
    app.state.flashes = FlashMessages()
    app.state.live = live_updates.LiveUpdateHub(context)
    app.state.served = frozenset(route_paths("GET"))
    app.add_middleware(refresh_rate.SerialRefreshMiddleware, pace=app.state.live.refresh_rate)


def include_page_routers(made: APIRouter) -> None:
    """No route of these changes anything without passing the guard."""
    made.include_router(assets.router)
    for router in page_routers():
        made.include_router(router, dependencies=[Depends(read_verified_form)], include_in_schema=False)


def page_routers() -> list[APIRouter]:
    """Every module of `pages` has one."""
    names = sorted(module.name for module in pkgutil.iter_modules(pages.__path__))
    modules = [importlib.import_module(f"{pages.__name__}.{name}") for name in names]
    return [live_updates.router, login.router, *(module.router for module in modules)]


def route_paths(method: str) -> list[str]:
    """Where the web answers this method, with the names of parameters in braces."""
    routes = [route for router in page_routers() for route in router.routes]
    return [route.path for route in routes if isinstance(route, APIRoute) and method in (route.methods or ())]
