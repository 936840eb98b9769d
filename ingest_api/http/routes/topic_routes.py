"""/routes/{topic}: which brokers hold a topic; a name server's answer.

Owns the JSON of a route.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter
from pydantic import BaseModel, Field

from ha_replicator.nameserver import BrokerData, RouteTables
from ingest_api.http.schemas import OrderConfText, TopicPath, noun_router
from store_native.errors import InvalidRequest


class RouteQueues(BaseModel):
    """What one broker holds of the topic."""

    broker_name: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    order_conf: Annotated[OrderConfText | None, Field(description="The list that this broker has.")]


class RouteBroker(BaseModel):
    """Where the brokers of one name answer, by broker id; 0 is the master."""

    cluster: str
    broker_name: str
    addresses: dict[str, str]
    epoch: Annotated[int | None, Field(description="The master's; null where none is registered.")]


class TopicRoute(BaseModel):
    """The route of a topic."""

    queues: list[RouteQueues]
    brokers: list[RouteBroker]
    order_conf: Annotated[
        OrderConfText | None,
        Field(description="The newest list of an ordered topic's brokers, those that are away included."),
    ]


def router(tables: RouteTables, refresh: Callable[[str], None] = lambda topic: None) -> APIRouter:
    """Builds the routes.

    Args:
        tables: What is known.
        refresh: Brings a topic up to date in them, before it is looked up.
    """
    routes = noun_router("routes")

    @routes.get("/routes/{topic}", response_model=TopicRoute)
    async def get_route(topic: TopicPath) -> TopicRoute:
        """Returns who holds a topic."""
        refresh(topic)
        route = tables.route(topic)
        if route is None:
            raise InvalidRequest("TOPIC_NOT_EXIST", f"no broker holds topic[{topic}]", topic=topic)
        return TopicRoute(
            queues=[
                RouteQueues(
                    broker_name=name,
                    read_queue_nums=queues.read_queue_nums,
                    write_queue_nums=queues.write_queue_nums,
                    perm=queues.perm,
                    order_conf=OrderConfText.of(queues.order_conf),
                )
                for name, queues in sorted(route.queues.items())
            ],
            brokers=[broker_of(data) for data in route.brokers],
            order_conf=OrderConfText.of(route.order_conf),
        )

    return routes


def broker_of(data: BrokerData) -> RouteBroker:
    """Renders what the tables say of a broker name."""
    return RouteBroker(
        cluster=data.cluster,
        broker_name=data.broker_name,
        addresses={str(broker_id): address for broker_id, address in data.addresses.items()},
        epoch=data.epoch,
    )
