//! What a status remembers of the past: the newest first, and only so much. A status that grows without end cannot be stored
//! one day.

/// Adds an entry at the front, and forgets the oldest beyond `most`.
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
