"""/brokers/{name}/{id}: registration with a name server.

Owns the form of a registration; who may register is the name server's to say, since who registers a name gets
its senders.
"""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from ha_replicator.nameserver import BrokerRegistration, NameServer, QueueData, SignedRequest
from ingest_api.http.schemas import MAX_LONG, CheckedTopic, OrderConfText, noun_router
from store_native.names import PERM_ALL

BrokerName = Annotated[str, Path(pattern=r"^[a-zA-Z0-9_-]{1,127}$")]
BrokerId = Annotated[int, Path(ge=0, le=(1 << 31) - 1)]
Address = Annotated[str, Field(pattern=r"^https?://[A-Za-z0-9.\-\[\]:]{1,255}$")]
HostPort = Annotated[str, Field(pattern=r"^[A-Za-z0-9.\-\[\]:]{1,255}:[0-9]{1,5}$")]
QueueNums = Annotated[int, Field(ge=0, le=65_536)]


class _Told(BaseModel):
    """What a broker tells; one of a newer release may tell more, which is passed over."""

    model_config = ConfigDict(extra="ignore")


class TopicQueues(_Told):
    """How many queues of a topic the broker holds."""

    topic: CheckedTopic
    read_queue_nums: QueueNums
    write_queue_nums: QueueNums
    perm: Annotated[int, Field(ge=0, le=PERM_ALL)]
    order_conf: OrderConfText | None = None


class Registration(_Told):
    """What a broker says of itself, every 30 s and at once after a change."""

    cluster: Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,127}$")]
    address: Address
    replication_address: HostPort | None = None
    epoch: Annotated[int, Field(ge=0, le=MAX_LONG, description="A master's own.")] = 0
    store_id: Annotated[str, Field(max_length=64)] = ""
    heartbeat_s: Annotated[float, Field(ge=0, le=3_600, description="How often it registers.")] = 0.0
    log_parted: Annotated[bool, Field(description="A slave's log is not its master's.")] = False
    data_version: Annotated[str, Field(max_length=128, description="Changes whenever topics does.")]
    topics: Annotated[
        list[TopicQueues] | None,
        Field(max_length=100_000, description="May be left out while data_version stays."),
    ] = None


class Registered(BaseModel):
    """What the name server answers."""

    topics_wanted: bool
    master_address: str | None
    master_replication_address: str | None


def router(name_server: NameServer) -> APIRouter:
    """Builds the routes."""
    routes = noun_router("brokers")

    @routes.put("/brokers/{name}/{broker_id}", response_model=Registered)
    async def register_broker(
        name: BrokerName, broker_id: BrokerId, registration: Registration, request: Request
    ) -> Registered:
        """Registers a broker, or takes its heartbeat.

        Signed with the cluster's secret (docs/replication.md); without one it comes from this machine.
        """
        topics = None
        if registration.topics is not None:
            topics = {
                t.topic: QueueData(
                    t.read_queue_nums,
                    t.write_queue_nums,
                    t.perm,
                    None if t.order_conf is None else t.order_conf.parsed(),
                )
                for t in registration.topics
            }
        answer = name_server.register(
            BrokerRegistration(
                cluster=registration.cluster,
                broker_name=name,
                broker_id=broker_id,
                address=registration.address,
                data_version=registration.data_version,
                topics=topics,
                replication_address=registration.replication_address,
                epoch=registration.epoch,
                store_id=registration.store_id,
                heartbeat_s=registration.heartbeat_s,
                log_parted=registration.log_parted,
            ),
            await _signed(request),
        )
        return Registered(
            topics_wanted=answer.topics_wanted,
            master_address=answer.master_address,
            master_replication_address=answer.master_replication_address,
        )

    @routes.delete("/brokers/{name}/{broker_id}", status_code=204, response_class=Response)
    async def unregister_broker(
        name: BrokerName,
        broker_id: BrokerId,
        request: Request,
        store_id: Annotated[str, Query(max_length=64, description="Whose registration it is.")] = "",
    ) -> Response:
        """Drops a broker from the tables at once, as it stops; signed as its registration is."""
        name_server.unregister(name, broker_id, await _signed(request), store_id)
        return Response(status_code=204)

    return routes


async def _signed(request: Request) -> SignedRequest:
    return SignedRequest(
        method=request.method,
        path=request.url.path + (f"?{request.url.query}" if request.url.query else ""),
        body=await request.body(),
        authorization=request.headers.get("authorization", ""),
        from_this_machine=request.client is None or is_loopback(request.client.host),
        client=request.client.host if request.client is not None else None,
    )


def is_loopback(host: str) -> bool:
    """Whether an address as a socket gives it is this machine's own loopback, IPv4 in IPv6 included."""
    address = ip_address(host.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback
