//! Cycles in graphs of names, for teardowns and rollouts.

use std::collections::{BTreeMap, VecDeque};

/// A graph as users write it: each name with the names that must come before it.
pub type Graph<'a> = BTreeMap<&'a str, Vec<&'a str>>;

/// Finds a cycle and returns it as a closed path, `["a", "b", "a"]`.
///
/// # Guarantees
///
/// The result depends on the graph alone: the same graph gives the same path. Names that are depended on but not in the
/// graph are ignored. The cost is linear in nodes and edges. The search keeps its own stack, so a chain of a hundred
/// thousand names is safe.
pub fn cycle<'a>(graph: &Graph<'a>) -> Option<Vec<&'a str>> {
    let mut finished: BTreeMap<&str, bool> = BTreeMap::new();
    for start in graph.keys() {
        let mut path: Vec<(&'a str, std::slice::Iter<'_, &'a str>)> = Vec::new();
        let mut visit = Some(*start);
        loop {
            if let Some(name) = visit.take() {
                match (finished.get(name), graph.get_key_value(name)) {
                    (None, Some((name, before))) => {
                        finished.insert(name, false);
                        path.push((name, before.iter()));
                    }
                    // On the current path and not finished: the path from there closes here.
                    (Some(false), _) => {
                        let from = path.iter().position(|(on_path, _)| *on_path == name)?;
                        let mut cycle: Vec<&str> = path[from..].iter().map(|(name, _)| *name).collect();
                        cycle.push(name);
                        return Some(cycle);
                    }
                    (Some(true), _) | (None, None) => {}
                }
            }
            let Some((name, before)) = path.last_mut() else { break };
            if let Some(next) = before.next() {
                visit = Some(next);
            } else {
                finished.insert(name, true);
                path.pop();
            }
        }
    }
    None
}

/// Finds a shortest cycle that contains one name, as a closed path from that name back to it.
///
/// # Guarantees
///
/// Those of [`cycle`].
pub fn cycle_through<'a>(graph: &Graph<'a>, name: &str) -> Option<Vec<&'a str>> {
    let (start, _) = graph.get_key_value(name)?;
    let mut came_from: BTreeMap<&str, &'a str> = BTreeMap::new();
    let mut reached = VecDeque::from([*start]);
    while let Some(here) = reached.pop_front() {
        for next in graph.get(here).into_iter().flatten() {
            if next == start {
                let mut back = vec![*start, here];
                while let Some(before) = back.last().filter(|last| *last != start).and_then(|last| came_from.get(last))
                {
                    back.push(before);
                }
                back.reverse();
                return Some(back);
            }
            if let Some((next, _)) = graph.get_key_value(next)
                && !came_from.contains_key(next)
            {
                came_from.insert(next, here);
                reached.push_back(next);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diamond_has_no_cycle() {
        let graph = Graph::from([("a", vec![]), ("b", vec!["a"]), ("c", vec!["a"]), ("d", vec!["b", "c"])]);
        assert_eq!(cycle(&graph), None);
    }

    #[test]
    fn the_cycle_is_printed_as_a_closed_path_without_what_leads_to_it() {
        let graph = Graph::from([("start", vec!["x"]), ("x", vec!["y"]), ("y", vec!["z"]), ("z", vec!["x"])]);
        assert_eq!(cycle(&graph), Some(vec!["x", "y", "z", "x"]));
    }

    #[test]
    fn a_name_that_depends_on_itself_is_a_cycle() {
        assert_eq!(cycle(&Graph::from([("a", vec!["a"])])), Some(vec!["a", "a"]));
    }

    #[test]
    fn of_two_cycles_each_name_finds_its_own() {
        let graph = Graph::from([
            ("a", vec!["b"]),
            ("b", vec!["a"]),
            ("leads", vec!["x"]),
            ("x", vec!["y", "nowhere"]),
            ("y", vec!["z"]),
            ("z", vec!["y", "x"]),
            ("self", vec!["self"]),
        ]);
        let through = |name| cycle_through(&graph, name);
        assert_eq!(through("b"), Some(vec!["b", "a", "b"]));
        assert_eq!(through("x"), Some(vec!["x", "y", "z", "x"]));
        assert_eq!(through("z"), Some(vec!["z", "y", "z"]), "the shortest");
        assert_eq!(through("self"), Some(vec!["self", "self"]));
        assert_eq!((through("leads"), through("nowhere")), (None, None));
    }

    #[test]
    fn unknown_names_are_not_cycles() {
        assert_eq!(cycle(&Graph::from([("a", vec!["nowhere"])])), None);
    }

    #[test]
    fn a_very_long_chain_does_not_exhaust_the_stack() {
        let names: Vec<String> = (0..100_000).map(|n| format!("n{n:06}")).collect();
        let graph: Graph<'_> = names
            .iter()
            .enumerate()
            .map(|(n, name)| (name.as_str(), names.get(n + 1).map(String::as_str).into_iter().collect()))
            .collect();
        assert_eq!(cycle(&graph), None);
    }
}
