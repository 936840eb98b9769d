"""/replication: what this broker is to the others of its name, and its promotion.

Owns the JSON of that state, and who may promote.
"""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field

from ha_replicator.identity import BrokerRole
from ingest_api.broker.broker import Broker
from ingest_api.http.routes.brokers import is_loopback
from ingest_api.http.schemas import noun_router
from store_native.errors import InvalidRequest

Role = Literal["async-master", "sync-master", "slave"]
Offset = Annotated[int, Field(ge=0, description="Physical, in the commit log.")]


class EpochStart(BaseModel):
    """An epoch of the log and where its first byte lies."""

    epoch: int
    start_offset: Offset


class Slave(BaseModel):
    """A slave that follows this master."""

    broker_id: Annotated[int | None, Field(description="Null for a RocketMQ slave, which does not say.")]
    acked: Offset
    lag_bytes: Annotated[int, Field(description="What it did not report yet.")]
    lag_s: Annotated[
        float | None,
        Field(description="Since the first message of that was stored; 0: none, null: not known."),
    ]
    bytes_per_s: Annotated[
        float, Field(description="What it reported in the last 10 s, or since it follows.")
    ]
    silent_s: Annotated[float, Field(description="Since its last report.")]


class Replication(BaseModel):
    """What the broker is and how far its log is."""

    cluster: str
    broker_name: str
    broker_id: int
    role: Role
    epoch: Annotated[int, Field(description="The highest that this broker heard of.")]
    epochs: list[EpochStart]
    first_offset: Offset
    appended: Offset
    flushed: Offset
    confirmed: Annotated[int, Field(description="What lies before it is never taken back, and can be read.")]
    ha_port: Annotated[int | None, Field(description="Where slaves connect; null: nowhere.")]
    master: Annotated[str | None, Field(description="Where a slave is configured to find its master.")]
    min_in_sync: int
    in_reach: Annotated[bool, Field(description="Whether enough slaves can have a message soon.")]
    following: bool
    failure: Annotated[str | None, Field(description="Why a slave does not follow.")]
    log_parted: Annotated[
        str | None,
        Field(
            description="Why a slave's log is not its master's, and is not read in its place; null: it is."
        ),
    ]
    read_only: Annotated[
        str | None,
        Field(description="Why the store takes no more messages until it is opened again; null: it does."),
    ]
    lag_bytes: Annotated[
        int | None,
        Field(
            description="What a slave lacks of its master's log, as far as it heard of that; null: it heard "
            "of none since its start, or is a master.",
        ),
    ]
    slaves: list[Slave]


class Promoted(BaseModel):
    """The new epoch, and what is known of the log of the master before."""

    epoch: int
    role: Role
    begins_at: Annotated[int, Field(ge=0, description="Where the epoch's first byte lies in the log.")]
    master_end: Annotated[
        int | None,
        Field(
            description="The old master's log went so far at least, when it was heard last; null: none was "
            "heard since the slave's start.",
        ),
    ]
    lacks_bytes: Annotated[
        int | None, Field(description="So much of that at least is missing. What it took later is not known.")
    ]
    silent_s: Annotated[float | None, Field(description="Since the old master was heard last.")]


def router(broker: Broker) -> APIRouter:
    """Builds the routes."""
    routes = noun_router("replication")

    @routes.get("/replication", response_model=Replication)
    async def get_replication() -> Replication:
        """Returns role, epochs, offsets, and the slaves that follow."""
        status = broker.replication.status()
        fields = {
            name: getattr(status, name)
            for name in Replication.model_fields
            if name not in ("epochs", "slaves")
        }
        return Replication(
            epochs=[EpochStart(epoch=epoch, start_offset=start) for epoch, start in status.epochs],
            slaves=[
                Slave(**{name: getattr(slave, name) for name in Slave.model_fields})
                for slave in status.slaves
            ],
            **fields,
        )

    @routes.post("/replication/promote", response_model=Promoted)
    async def promote(
        request: Request,
        role: Annotated[Literal["async-master", "sync-master"], Query(description="What it becomes.")] = (
            "async-master"
        ),
        force: Annotated[
            bool,
            Query(description="Also where it lacks what its master had, or that answers: loses it."),
        ] = False,
    ) -> Promoted:
        """Makes this slave the master of a new epoch; refused from another machine.

        Call it when the old master is gone, or is about to be restarted as a slave of this one.
        """
        if request.client is not None and not is_loopback(request.client.host):
            raise InvalidRequest(
                "NO_PERMISSION",
                "a broker is promoted from its own machine only until requests are authenticated",
                client=request.client.host,
            )
        promotion = await broker.replication.promote(BrokerRole(role), force=force)
        return Promoted(
            epoch=promotion.epoch,
            role=role,
            begins_at=promotion.begins_at,
            master_end=promotion.master_end,
            lacks_bytes=promotion.lacks_bytes,
            silent_s=promotion.silent_s,
        )

    return routes
