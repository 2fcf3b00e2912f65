"""Puts the web into the application."""

import importlib
import pkgutil

from fastapi import APIRouter, Depends, FastAPI
from fastapi.routing import APIRoute

from heliostat.services.context import Context
from heliostat.web import assets, live, login, pace, pages
from heliostat.web.rendering import Flashes
from heliostat.web.visits import guard


def install(app: FastAPI, context: Context) -> None:
    """What the pages need besides their routes."""
    app.state.flashes = Flashes()
    app.state.live = live.Hub(context)
    app.state.served = frozenset(paths("GET"))
    app.add_middleware(pace.OneAtATime, pace=app.state.live.pace)


def include_pages(made: APIRouter) -> None:
    """No route of these changes anything without passing the guard."""
    made.include_router(assets.router)
    for router in routers():
        made.include_router(router, dependencies=[Depends(guard)], include_in_schema=False)


def routers() -> list[APIRouter]:
    """Every module of `pages` has one."""
    names = sorted(module.name for module in pkgutil.iter_modules(pages.__path__))
    modules = [importlib.import_module(f"{pages.__name__}.{name}") for name in names]
    return [live.router, login.router, *(module.router for module in modules)]


def paths(method: str) -> list[str]:
    """Where the web answers this method, with the names of parameters in braces."""
    routes = [route for router in routers() for route in router.routes]
    return [route.path for route in routes if isinstance(route, APIRoute) and method in (route.methods or ())]
