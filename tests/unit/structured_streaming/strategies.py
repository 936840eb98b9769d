"""Random queues, positions and stores for the property tests of the offset arithmetic."""

from __future__ import annotations

from hypothesis import strategies as st

from structured_streaming.offsets import Bounds, MessageQueue, Offsets, TopicMetadata

queues = st.builds(
    MessageQueue,
    st.sampled_from(["orders", "payments", "%RETRY%g"]),
    st.sampled_from(["broker-a", "broker-b"]),
    st.integers(0, 12),
)
counts = st.integers(0, 10_000)
bounds = st.tuples(counts, counts).map(lambda pair: Bounds(min(pair), max(pair)))
TOPIC_IDS = {"orders": "a1", "payments": "b2", "%RETRY%g": "c3"}


@st.composite
def offsets(draw: st.DrawFn, epoch: int = 1) -> Offsets:
    positions = draw(st.dictionaries(queues, counts, max_size=20))
    return Offsets(epoch, {q.topic: TOPIC_IDS[q.topic] for q in positions}, positions)


@st.composite
def metadata_values(draw: st.DrawFn, epoch: int = 1) -> TopicMetadata:
    held = draw(st.dictionaries(queues, bounds, max_size=20))
    return TopicMetadata(epoch, {q.topic: TOPIC_IDS[q.topic] for q in held}, held)
