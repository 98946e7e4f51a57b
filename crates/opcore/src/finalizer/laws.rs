//! The properties of teardowns, tested with random graphs, worlds, clocks and policies, and a crash between any two
//! writes.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;

use super::*;

/// The state outside the operator's memory: the object, and what each step has to take down.
#[derive(Clone, Debug)]
struct World {
    /// The published status of the object, and its version.
    record: Option<TeardownRecord>,
    finalizer: bool,
    /// Per step: the UIDs of the things to take down, and how many passes each still takes once it is deleted.
    things: BTreeMap<String, Vec<Thing>>,
    now: Timestamp,
}

#[derive(Clone, Debug)]
struct Thing {
    uid: u32,
    deleting: bool,
    /// The number of passes until it is gone, once it is deleted; none means never.
    takes: Option<u8>,
}

/// One write of a pass. A crash can separate it from the others.
#[derive(Clone, Debug)]
enum Written {
    Delete(String, u32),
    Publish(TeardownRecord),
    Release,
}

/// One pass of an operator that has no memory. Returns its writes, in order.
fn decide(teardown: &Teardown, world: &World, force: &Force) -> Vec<Written> {
    let see = |step: &str| match world.things.get(step).map(Vec::as_slice) {
        None | Some([]) => StepStatus::Done,
        Some(left) if left.iter().any(|thing| thing.takes.is_none()) => {
            StepStatus::Blocked { by: vec![format!("{step} is stuck")], retry: None }
        }
        Some(left) => StepStatus::Pending { reason: format!("{} left", left.len()), retry: None },
    };
    let progress = teardown.advance(world.record.as_ref(), see, force, world.now);
    let mut writes = Vec::new();
    for step in &progress.act {
        let left = world.things.get(step).into_iter().flatten().filter(|thing| !thing.deleting);
        writes.extend(left.map(|thing| Written::Delete(step.clone(), thing.uid)));
    }
    if progress.state == TeardownState::Released {
        writes.push(Written::Release);
    } else if world.record.as_ref() != Some(&progress.record) {
        writes.push(Written::Publish(progress.record));
    }
    writes
}

impl World {
    /// Does one write, and checks the properties that hold at every moment.
    fn commit(&mut self, steps: &BTreeMap<String, Vec<String>>, write: Written) -> Result<(), TestCaseError> {
        match write {
            Written::Delete(step, uid) => {
                let record = self.record.as_ref();
                let phase = |name: &str| record.and_then(|record| record.step(name)).map(|step| step.phase);
                prop_assert_eq!(phase(&step), Some(StepPhase::Running), "{} acts before it is published", step);
                for before in &steps[&step] {
                    prop_assert!(phase(before).is_some_and(StepPhase::is_over), "{step} acts before {before} is over");
                }
                for thing in self.things.get_mut(&step).into_iter().flatten().filter(|thing| thing.uid == uid) {
                    thing.deleting = true;
                }
            }
            Written::Publish(record) => {
                for was in self.record.iter().flat_map(|old| &old.steps).filter(|was| was.phase.is_over()) {
                    let now = record.step(&was.name).map(|now| now.phase);
                    prop_assert_eq!(now, Some(was.phase), "what is over stays over");
                }
                self.record = Some(record);
            }
            Written::Release => {
                let record = self.record.clone().expect("released without a record");
                for name in steps.keys() {
                    let step = record.step(name).expect("every step is recorded");
                    let left = self.things.get(name).map_or(0, Vec::len);
                    match step.phase {
                        StepPhase::Done => prop_assert_eq!(left, 0, "{} is Done with {} things left", name, left),
                        StepPhase::Leaked => prop_assert!(step.message.is_some(), "{name} leaked without a word"),
                        other => prop_assert!(false, "released while {name} is {other:?}"),
                    }
                }
                self.finalizer = false;
            }
        }
        Ok(())
    }

    /// Time passes, and deleted things go.
    fn tick(&mut self, seconds: u8) {
        self.now += SignedDuration::from_secs(seconds.into());
        for things in self.things.values_mut() {
            for thing in things.iter_mut().filter(|thing| thing.deleting) {
                thing.takes = thing.takes.map(|passes| passes.saturating_sub(1));
            }
            things.retain(|thing| !(thing.deleting && thing.takes == Some(0)));
        }
    }
}

#[derive(Clone, Debug)]
struct Case {
    steps: Vec<(Vec<usize>, Option<u8>, Option<OnExpiry>)>,
    things: Vec<Vec<Option<u8>>>,
    whole: Option<u8>,
    policy: OnExpiry,
    /// Per pass: how long it takes, after how many of its writes the process crashes, and what a user asks to give up.
    passes: Vec<(u8, Option<u8>, Force)>,
}

fn policy() -> impl Strategy<Value = OnExpiry> {
    prop_oneof![Just(OnExpiry::Wait), Just(OnExpiry::Force), Just(OnExpiry::Manual)]
}

fn case() -> impl Strategy<Value = Case> {
    (1..6usize).prop_flat_map(|count| {
        let step = |n: usize| {
            // Only earlier steps: never a cycle.
            let after = proptest::collection::btree_set(0..n.max(1), 0..=n.min(3));
            (after, proptest::option::of(1..20u8), proptest::option::of(policy())).prop_map(
                move |(after, within, policy)| (after.into_iter().filter(|m| *m < n).collect(), within, policy),
            )
        };
        let steps: Vec<_> = (0..count).map(step).collect();
        let thing = prop_oneof![8 => (1..5u8).prop_map(Some), 1 => Just(None)];
        let things = proptest::collection::vec(proptest::collection::vec(thing, 0..3), count);
        let force = prop_oneof![
            30 => Just(Force::None),
            2 => (0..count).prop_map(|n| Force::Step(name(n))),
            1 => Just(Force::All),
        ];
        let passes = proptest::collection::vec((0..4u8, proptest::option::of(0..4u8), force), 40);
        (steps, things, proptest::option::of(5..60u8), policy(), passes)
            .prop_map(|(steps, things, whole, policy, passes)| Case { steps, things, whole, policy, passes })
    })
}

fn name(n: usize) -> String {
    format!("s{n}")
}

impl Case {
    fn teardown(&self) -> Teardown {
        let steps = self.steps.iter().enumerate().map(|(n, (after, within, policy))| {
            let mut one = step(name(n)).after(after.iter().copied().map(name));
            if let Some(within) = within {
                one = one.within(Duration::from_secs((*within).into()));
            }
            if let Some(policy) = policy {
                one = one.on_expiry(*policy);
            }
            one
        });
        let mut teardown = Teardown::graph(steps).unwrap().on_expiry(self.policy);
        if let Some(whole) = self.whole {
            teardown = teardown.within(Duration::from_secs(whole.into()));
        }
        teardown
    }

    fn edges(&self) -> BTreeMap<String, Vec<String>> {
        let after = |after: &[usize]| after.iter().copied().map(name).collect();
        self.steps.iter().enumerate().map(|(n, (before, ..))| (name(n), after(before))).collect()
    }

    /// Whether a step may run for ever: one of its own things is stuck and no deadline gives it up, or it waits for a
    /// person before it could act.
    fn may_last(&self, world: &World, record: &StepRecord) -> bool {
        let steps = self.steps.iter().enumerate().find(|(n, _)| name(*n) == record.name);
        let Some((_, (_, within, policy))) = steps else { return false };
        let policy = policy.unwrap_or(self.policy);
        let timed = within.or(self.whole).is_some();
        let left = world.things.get(&record.name).map_or(&[][..], Vec::as_slice);
        let stuck = left.iter().any(|thing| thing.takes.is_none()) && !(timed && policy == OnExpiry::Force);
        let stopped = policy == OnExpiry::Manual && record.overdue && left.iter().any(|thing| !thing.deleting);
        stuck || stopped
    }

    fn world(&self) -> World {
        let mut uid = 0;
        let mut thing = |takes: Option<u8>| {
            uid += 1;
            Thing { uid, deleting: false, takes }
        };
        let things = self.things.iter().enumerate();
        let things = things.map(|(n, takes)| (name(n), takes.iter().map(|takes| thing(*takes)).collect())).collect();
        World { record: None, finalizer: true, things, now: Timestamp::UNIX_EPOCH }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// The property: an object is released only when every step is Done, or given up with a record of what leaked; in
    /// order; whatever crashes.
    #[test]
    fn a_finalizer_is_released_only_when_every_step_is_over_whatever_crashes(case in case()) {
        let (teardown, edges, mut world) = (case.teardown(), case.edges(), case.world());
        for (seconds, crash_after, force) in &case.passes {
            let writes = decide(&teardown, &world, force);
            let survives = crash_after.map_or(usize::MAX, usize::from);
            for write in writes.into_iter().take(survives) {
                world.commit(&edges, write)?;
            }
            if !world.finalizer {
                return Ok(());
            }
            world.tick(*seconds);
        }
        // Without more crashes the teardown ends, unless something is stuck that no policy may give up.
        for _ in 0..200 {
            if !world.finalizer {
                return Ok(());
            }
            for write in decide(&teardown, &world, &Force::None) {
                world.commit(&edges, write)?;
            }
            world.tick(1);
        }
        let record = world.record.clone().expect("a record");
        let running: Vec<_> = record.steps.iter().filter(|step| step.phase == StepPhase::Running).collect();
        prop_assert!(!world.finalizer || !running.is_empty(), "nothing runs, and it never ends: {:#?}", world);
        for step in running {
            prop_assert!(case.may_last(&world, step), "{} never ends: {:#?}", step.name, world);
        }
        // A person can end it even if something is stuck.
        for _ in 0..case.steps.len() + 2 {
            for write in decide(&teardown, &world, &Force::All) {
                if world.finalizer {
                    world.commit(&edges, write)?;
                }
            }
        }
        prop_assert!(!world.finalizer, "even by force it never ends: {:#?}", world);
    }

    /// Deciding twice on the same state gives the same result, and publishing the decision changes nothing more by
    /// itself.
    #[test]
    fn deciding_is_repeatable_and_settles(case in case()) {
        let (teardown, edges, mut world) = (case.teardown(), case.edges(), case.world());
        for (seconds, _, force) in &case.passes {
            let again = |world: &World| format!("{:?}", decide(&teardown, world, force));
            prop_assert_eq!(again(&world), again(&world));
            for write in decide(&teardown, &world, force) {
                world.commit(&edges, write)?;
            }
            if !world.finalizer {
                break;
            }
            world.tick(*seconds);
        }
    }
}
