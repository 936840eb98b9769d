//! The store on disks that lose power, on disks that fail, and with its threads' work in an order of chance.

mod actions;
mod dice;
mod io_errors;
mod model;
mod power;
mod power_disk;
mod rubbish;
mod simulation;
mod support;
mod workload;
