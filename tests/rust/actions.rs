//! What a simulated run does, drawn from dice.

use lakemq_store::store::Work;

use crate::dice::Dice;
use crate::power_disk::Unsynced;

/// What is done next.
#[derive(Debug, Clone)]
pub enum Action {
    Send {
        topic: usize,
        count: usize,
        length: usize,
        keyed: bool,
    },
    SendLater {
        level: usize,
        count: usize,
        keyed: bool,
    },
    Repeat(usize),
    Commit(usize),
    Lease {
        owner: usize,
        ttl_ms: i64,
    },
    Delete(usize),
    Pass(i64),
    Work(Work),
    Checkpoint,
    Expire,
    CleanStop,
    Kill,
    PowerCut(Unsynced, u64),
    Look,
}

pub fn actions(dice: &mut Dice) -> Vec<Action> {
    let many = 20 + dice.below(60);
    (0..many).map(|_| action(dice)).collect()
}

fn action(dice: &mut Dice) -> Action {
    let count = if dice.in_a_hundred(60) {
        1
    } else {
        2 + dice.below(6)
    };
    match dice.below(40) {
        0..10 => Action::Send {
            topic: dice.below(2),
            count,
            length: [10, 300, 6_000][dice.below(3)],
            keyed: dice.in_a_hundred(40),
        },
        10..14 => Action::SendLater {
            level: 1 + dice.below(3),
            count,
            keyed: dice.in_a_hundred(30),
        },
        14 | 15 => Action::Repeat(dice.below(100)),
        16 => Action::Commit(dice.below(100)),
        17 => Action::Delete(dice.below(2)),
        18..20 => Action::Pass([1, 500, 1_000, 5_000, 20_000][dice.below(5)]),
        20..23 => Action::Work(Work::Flush),
        23..25 => Action::Work(Work::FlushAlone),
        25..28 => Action::Work(Work::Dispatch),
        28..32 => Action::Work(Work::Deliver),
        32 => Action::Work(Work::Prepare),
        33 => Action::Checkpoint,
        34 => Action::Expire,
        38 => Action::Lease {
            owner: dice.below(2),
            ttl_ms: [1_000, 30_000][dice.below(2)],
        },
        35 => Action::CleanStop,
        36 => Action::Kill,
        37 => {
            let unsynced = [
                Unsynced::Lost,
                Unsynced::Kept,
                Unsynced::Torn,
                Unsynced::Mixed,
            ];
            Action::PowerCut(unsynced[dice.below(4)], dice.roll())
        }
        _ => Action::Look,
    }
}
