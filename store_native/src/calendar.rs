//! Calendar dates in UTC, from epoch milliseconds (Gregorian, proleptic).

const DAY_MS: i64 = 86_400_000;

/// A date.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Date {
    pub year: i64,
    /// 1 to 12.
    pub month: i64,
    /// 1 to 31.
    pub day: i64,
}

/// The date of a moment, and the milliseconds since its midnight.
pub fn date_of(epoch_ms: i64) -> (Date, i64) {
    // Eras of 400 years from 0000-03-01, so that a leap day ends a year.
    let z = epoch_ms.div_euclid(DAY_MS) + 719_468;
    let era = z.div_euclid(146_097);
    let day_of_era = z.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    (Date { year, month, day }, epoch_ms.rem_euclid(DAY_MS))
}

/// The first millisecond of the month of a moment.
pub fn month_start(epoch_ms: i64) -> i64 {
    let (date, of_day) = date_of(epoch_ms);
    epoch_ms - of_day - (date.day - 1) * DAY_MS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_months_begin_where_the_calendar_says() {
        for (moment, start) in [
            (0, 0),
            (1_582_934_399_999, 1_580_515_200_000), // 2020-02-28T23:59:59.999
            (1_583_020_799_999, 1_580_515_200_000), // 2020-02-29T23:59:59.999
            (1_583_020_800_000, 1_583_020_800_000), // 2020-03-01
            (1_798_761_599_999, 1_796_083_200_000), // 2026-12-31T23:59:59.999
        ] {
            assert_eq!(month_start(moment), start, "{moment}");
        }
        assert_eq!(date_of(-1), (Date { year: 1969, month: 12, day: 31 }, DAY_MS - 1));
    }
}
