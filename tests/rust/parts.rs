//! Parts of the store by themselves, at the edges that a whole store rarely comes to.

#[path = "parts/delays.rs"]
mod delays;
#[path = "parts/deliveries.rs"]
mod deliveries;
#[path = "parts/dispatching.rs"]
mod dispatching;
#[path = "parts/index_edges.rs"]
mod index_edges;
#[path = "parts/index_files.rs"]
mod index_files;
mod jumping_clock;
#[path = "parts/key_file.rs"]
mod key_file;
#[path = "parts/log_end.rs"]
mod log_end;
#[path = "parts/log_scan.rs"]
mod log_scan;
#[path = "parts/long_recoveries.rs"]
mod long_recoveries;
#[path = "parts/queue_edges.rs"]
mod queue_edges;
#[path = "parts/queue_files.rs"]
mod queue_files;
#[path = "parts/queue_fronts.rs"]
mod queue_fronts;
#[path = "parts/records.rs"]
mod records;
#[path = "parts/recoveries.rs"]
mod recoveries;
#[path = "parts/refused_queues.rs"]
mod refused_queues;
#[path = "parts/refusing_disk.rs"]
mod refusing_disk;
#[path = "parts/rounds.rs"]
mod rounds;
#[path = "parts/small_index.rs"]
mod small_index;
#[path = "parts/starts.rs"]
mod starts;
mod support;
#[path = "parts/torn_entries.rs"]
mod torn_entries;
#[path = "parts/written_again.rs"]
mod written_again;
