//! The graph of a plan's waves, checked and ordered.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use opcore::graph::cycle;

use crate::api::v1alpha1::Wave;

/// The waves of a plan, by their index in the spec.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Graph {
    /// An order in which they could run one after another. Waves that wait for each other come last.
    pub order: Vec<usize>,
    /// For each wave, the waves that it depends on.
    pub before: Vec<Vec<usize>>,
    /// For each wave that can never start, the reason.
    pub broken: BTreeMap<usize, String>,
}

/// Orders waves.
///
/// # Guarantees
///
/// Total: waves that wait for each other, or for a wave that does not exist, are reported as broken, and the others are
/// ordered as if the broken ones did not exist.
pub fn graph(waves: &[Wave]) -> Graph {
    let mut place: HashMap<&str, usize> = HashMap::new();
    let mut broken: BTreeMap<usize, String> = BTreeMap::new();
    for (number, wave) in waves.iter().enumerate() {
        if place.insert(&wave.name, number).is_some() {
            broken.insert(number, format!("another wave has the name {}; give each wave a unique name", wave.name));
        }
    }
    for (number, wave) in waves.iter().enumerate() {
        for dependency in wave.depends_on.iter().filter(|dependency| !place.contains_key(dependency.wave.as_str())) {
            let why = format!("it depends on {}, which is not in spec.waves", dependency.wave);
            broken.entry(number).or_insert(why);
        }
    }
    let before: Vec<Vec<usize>> = waves
        .iter()
        .map(|wave| {
            wave.depends_on.iter().filter_map(|dependency| place.get(dependency.wave.as_str()).copied()).collect()
        })
        .collect();
    let mut order = sorted(&before);
    break_cycles(waves, &before, &order, &mut broken);
    let ordered: BTreeSet<usize> = order.iter().copied().collect();
    order.extend((0..waves.len()).filter(|number| !ordered.contains(number)));
    Graph { order, before, broken }
}

/// Kahn's algorithm, stable: of the waves that could come next, it takes the one that was written first. Waves in or
/// behind a cycle are left out.
fn sorted(before: &[Vec<usize>]) -> Vec<usize> {
    let mut missing: Vec<usize> = before.iter().map(Vec::len).collect();
    let mut after: Vec<Vec<usize>> = vec![Vec::new(); before.len()];
    for (number, firsts) in before.iter().enumerate() {
        for first in firsts {
            after[*first].push(number);
        }
    }
    let mut ready: BTreeSet<usize> = (0..before.len()).filter(|number| missing[*number] == 0).collect();
    let mut order = Vec::with_capacity(before.len());
    while let Some(number) = ready.pop_first() {
        order.push(number);
        for next in &after[number] {
            missing[*next] -= 1;
            if missing[*next] == 0 {
                ready.insert(*next);
            }
        }
    }
    order
}

fn break_cycles(waves: &[Wave], before: &[Vec<usize>], order: &[usize], broken: &mut BTreeMap<usize, String>) {
    let mut left: BTreeSet<usize> = (0..waves.len()).collect();
    for number in order {
        left.remove(number);
    }
    while !left.is_empty() {
        let edges = left.iter().map(|number| {
            let firsts = before[*number].iter().filter(|first| left.contains(first));
            (waves[*number].name.as_str(), firsts.map(|first| waves[*first].name.as_str()).collect())
        });
        let Some(path) = cycle(&edges.collect()) else { break };
        let words = format!("these waves wait for each other: {}; remove one of the dependencies", path.join(" → "));
        let on_path: Vec<usize> =
            left.iter().copied().filter(|number| path.contains(&waves[*number].name.as_str())).collect();
        for number in on_path {
            left.remove(&number);
            broken.entry(number).or_insert_with(|| words.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::v1alpha1::Dependency;

    fn waves(edges: &[(&str, &[&str])]) -> Vec<Wave> {
        let dependency = |wave: &&str| Dependency { wave: (*wave).to_owned(), ..Dependency::default() };
        edges
            .iter()
            .map(|(name, before)| Wave {
                name: (*name).to_owned(),
                depends_on: before.iter().map(dependency).collect(),
                ..Wave::default()
            })
            .collect()
    }

    fn names(waves: &[Wave], order: &[usize]) -> Vec<String> {
        order.iter().map(|number| waves[*number].name.clone()).collect()
    }

    #[test]
    fn waves_come_after_what_they_depend_on_however_they_are_written_down() {
        let waves = waves(&[("ui", &["db"]), ("db", &["core"]), ("core", &[])]);
        assert_eq!(names(&waves, &graph(&waves).order), ["core", "db", "ui"]);
    }

    #[test]
    fn a_cycle_is_reported_as_a_path_and_breaks_only_its_own_waves() {
        let waves = waves(&[("a", &["c"]), ("b", &["a"]), ("c", &["b"]), ("free", &[]), ("behind", &["a"])]);
        let graph = graph(&waves);
        assert_eq!(names(&waves, &graph.order)[0], "free");
        assert_eq!(graph.broken.keys().copied().collect::<Vec<_>>(), [0, 1, 2]);
        assert!(graph.broken[&0].contains("a → c → b → a"), "{}", graph.broken[&0]);
    }

    #[test]
    fn a_wave_that_depends_on_itself_on_nothing_known_or_has_a_twin_is_broken() {
        let waves = waves(&[("a", &["a"]), ("b", &["nowhere"]), ("c", &[]), ("c", &[])]);
        let broken = graph(&waves).broken;
        assert!(broken[&0].contains("a → a"), "{broken:?}");
        assert!(broken[&1].contains("nowhere"), "{broken:?}");
        assert!(broken[&3].contains("another wave has the name c"), "{broken:?}");
        assert_eq!(broken.len(), 3);
    }
}
