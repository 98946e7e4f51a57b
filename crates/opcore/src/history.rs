//! The history in a status: newest first, and bounded. A status that grows without limit eventually becomes too large
//! to store.

/// Adds an entry at the front, and drops the oldest entries beyond `most`.
pub fn remember<T>(history: &mut Vec<T>, entry: T, most: usize) {
    history.insert(0, entry);
    history.truncate(most);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_come_first_and_the_oldest_are_forgotten() {
        let mut history = Vec::new();
        (1..=4).for_each(|number| remember(&mut history, number, 3));
        assert_eq!(history, [4, 3, 2]);
    }
}
