//! Finding the bytes that a JSON string must escape: quotation mark, backslash, control characters.

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = 0x8080_8080_8080_8080;

/// A bit in the highest place of the first special byte of a little-endian word; bits behind it may be
/// wrong, no bit stands before it.
#[inline]
pub(crate) fn special_bytes(word: u64) -> u64 {
    let zero_in = |w: u64| w.wrapping_sub(ONES) & !w & HIGHS;
    let control = word.wrapping_sub(ONES * 0x20) & !word & HIGHS;
    control | zero_in(word ^ (ONES * u64::from(b'"'))) | zero_in(word ^ (ONES * u64::from(b'\\')))
}

#[inline]
fn is_special(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\'
}

/// How many bytes come before the first special one.
#[inline]
pub(crate) fn plain_len(bytes: &[u8]) -> usize {
    let mut at = 0;
    // Compilers turn the test of a fixed block into vector instructions.
    for block in bytes.chunks_exact(32) {
        if block.iter().fold(false, |hit, byte| hit | is_special(*byte)) {
            break;
        }
        at += 32;
    }
    while let Some(word) = bytes.get(at..).and_then(<[u8]>::first_chunk::<8>) {
        let hits = special_bytes(u64::from_le_bytes(*word));
        if hits != 0 {
            return at + (hits.trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    at + bytes.iter().skip(at).take_while(|byte| !is_special(**byte)).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn test_plain_len_equals_the_count_byte_by_byte(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let expected = bytes.iter().take_while(|byte| !is_special(**byte)).count();
            prop_assert_eq!(plain_len(&bytes), expected);
        }

        #[test]
        fn test_a_special_byte_is_found_behind_any_text(text in "[ !#-\\[\\]-~äöü]{0,150}", special in 0u8..0x20) {
            let mut bytes = text.clone().into_bytes();
            bytes.push(special);
            prop_assert_eq!(plain_len(&bytes), text.len());
        }
    }
}
