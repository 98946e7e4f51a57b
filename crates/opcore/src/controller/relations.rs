//! Which objects of an operator concern each other, and what they name, kept up to date as objects come, change and go.

use std::collections::{BTreeSet, HashMap};

use crate::queue::Key;

/// The names under which an object is known, and the names that it refers to. When an object changes, the objects that
/// refer to it are woken. When its own references change, the objects that it refers to now or referred to before are
/// woken.
///
/// The names are the operator's own, for example `workspace/shop/network`. Only the operator needs to understand them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Relations {
    /// The names under which it is known.
    pub is: BTreeSet<String>,
    /// The names that it refers to.
    pub names: BTreeSet<String>,
}

/// The relations of all objects, from both ends.
#[derive(Debug, Default)]
pub(crate) struct Related {
    of: HashMap<Key, Relations>,
    called: HashMap<String, BTreeSet<Key>>,
    naming: HashMap<String, BTreeSet<Key>>,
}

impl Related {
    /// Records an object in its current form. Returns the other objects that this concerns.
    pub(crate) fn put(&mut self, key: &Key, now: Relations) -> BTreeSet<Key> {
        let before = self.of.get(key).cloned().unwrap_or_default();
        // The objects that it names are concerned only by a change of its names; the objects that name it, by any
        // change.
        let mut concerned = self.naming_any(&before);
        if before != now {
            concerned.extend(self.concerned(&before));
            self.drop_words(key, &before);
            for word in &now.is {
                self.called.entry(word.clone()).or_default().insert(key.clone());
            }
            for word in &now.names {
                self.naming.entry(word.clone()).or_default().insert(key.clone());
            }
            concerned.extend(self.concerned(&now));
            self.of.insert(key.clone(), now);
        }
        concerned.remove(key);
        concerned
    }

    /// Removes an object that is gone. Returns the objects that this concerns.
    pub(crate) fn remove(&mut self, key: &Key) -> BTreeSet<Key> {
        let Some(before) = self.of.remove(key) else { return BTreeSet::new() };
        let mut concerned = self.concerned(&before);
        self.drop_words(key, &before);
        concerned.remove(key);
        concerned
    }

    /// The objects that refer to this name.
    pub(crate) fn naming(&self, word: &str) -> BTreeSet<Key> {
        self.naming.get(word).cloned().unwrap_or_default()
    }

    fn concerned(&self, relations: &Relations) -> BTreeSet<Key> {
        let called = relations.names.iter().filter_map(|word| self.called.get(word));
        let mut concerned = self.naming_any(relations);
        concerned.extend(called.flatten().cloned());
        concerned
    }

    fn naming_any(&self, relations: &Relations) -> BTreeSet<Key> {
        relations.is.iter().filter_map(|word| self.naming.get(word)).flatten().cloned().collect()
    }

    fn drop_words(&mut self, key: &Key, relations: &Relations) {
        let ends = [(&mut self.called, &relations.is), (&mut self.naming, &relations.names)];
        for (index, words) in ends {
            for word in words {
                if let Some(keys) = index.get_mut(word) {
                    keys.remove(key);
                    if keys.is_empty() {
                        index.remove(word);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key { namespace: None, name: name.to_owned() }
    }

    fn relations(is: &[&str], names: &[&str]) -> Relations {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        Relations { is: words(is), names: words(names) }
    }

    fn keys(names: &[&str]) -> BTreeSet<Key> {
        names.iter().map(|name| key(name)).collect()
    }

    #[test]
    fn a_change_concerns_those_that_name_the_object_and_those_that_it_names_or_named() {
        let mut related = Related::default();
        assert_eq!(related.put(&key("network"), relations(&["network"], &[])), keys(&[]));
        assert_eq!(related.put(&key("shop"), relations(&["shop"], &["network"])), keys(&["network"]));
        assert_eq!(related.put(&key("bank"), relations(&["bank"], &["network"])), keys(&["network"]));
        assert_eq!(related.put(&key("network"), relations(&["network"], &[])), keys(&["bank", "shop"]));
        assert_eq!(related.put(&key("shop"), relations(&["shop"], &["network"])), keys(&[]), "it names what it named");
        // An object that stops naming "network" may be what "network" waited for.
        assert_eq!(related.put(&key("shop"), relations(&["shop"], &[])), keys(&["network"]));
        assert_eq!(related.put(&key("network"), relations(&["network"], &[])), keys(&["bank"]));
        assert_eq!(related.remove(&key("network")), keys(&["bank"]));
        assert_eq!(related.naming("network"), keys(&["bank"]), "it may come back");
    }

    #[test]
    fn nothing_is_left_of_objects_that_are_gone() {
        let mut related = Related::default();
        related.put(&key("shop"), relations(&["shop"], &["network", "secret"]));
        related.put(&key("shop"), relations(&["shop"], &["secret"]));
        related.remove(&key("shop"));
        assert!(related.of.is_empty() && related.called.is_empty() && related.naming.is_empty());
    }
}
