//! The store on disks that lose power and disks that fail.

mod dice;
mod io_errors;
mod power;
mod power_disk;
mod support;
mod workload;
