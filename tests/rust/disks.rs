//! The store on disks that lose power, on disks that fail, and with its threads' work in an order of chance.

mod actions;
mod crashes;
mod derived;
mod dice;
mod failing_reads;
mod io_errors;
mod jumping_clock;
mod looks;
mod machine;
mod model;
mod numbers;
mod pair;
mod power;
mod power_disk;
mod power_files;
mod power_pair;
mod requests;
mod rubbish;
mod simulation;
mod support;
mod workload;
