//! Whatever the order of events, the counts equal those of a full recomputation.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// Waves that apply three ConfigMaps, wait for three Widgets, and check all Widgets of a team.
fn waves() -> String {
    let map = |name: &str| {
        format!(
            "{{ manifests: {{ namespace: shop, inline: '{{ apiVersion: v1, kind: ConfigMap, metadata: {{ name: {name} }}, data: {{ text: rain }} }}' }} }}"
        )
    };
    let reference =
        |name: &str| format!("{{ ref: {{ apiVersion: example.io/v1, kind: Widget, namespace: shop, name: {name} }} }}");
    let maps = ["m0", "m1", "m2"].map(map).join(", ");
    let widgets = ["w0", "w1", "w2"].map(reference).join(", ");
    format!("{CHOICE}\n    - {{ name: maps, members: [{maps}] }}\n    - {{ name: widgets, members: [{widgets}] }}")
}

/// One event that a watch may report.
#[derive(Clone, Debug)]
enum Event {
    /// A ConfigMap exists, in the desired form or not. The last of them is in no plan.
    Map(usize, bool),
    MapGone(usize),
    /// A Widget exists, of the team or not, in one of its phases. The last of them is in no plan.
    Widget(usize, bool, usize),
    WidgetGone(usize),
    /// The plan is subscribed again with the same meaning.
    Subscribe,
}

const PHASES: [&str; 3] = ["Done", "Busy", "Broken"];

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        (0..4_usize, any::<bool>()).prop_map(|(number, wanted)| Event::Map(number, wanted)),
        (0..4_usize).prop_map(Event::MapGone),
        (0..4_usize, any::<bool>(), 0..PHASES.len()).prop_map(|(n, of_team, phase)| Event::Widget(n, of_team, phase)),
        (0..4_usize).prop_map(Event::WidgetGone),
        Just(Event::Subscribe),
    ]
}

/// The state of the cluster: the ConfigMaps, and the Widgets with their team and phase.
#[derive(Clone, Default)]
struct World {
    maps: BTreeMap<usize, bool>,
    widgets: BTreeMap<usize, (bool, usize)>,
}

impl World {
    fn take(&mut self, event: &Event) {
        match event {
            Event::Map(number, wanted) => drop(self.maps.insert(*number, *wanted)),
            Event::MapGone(number) => drop(self.maps.remove(number)),
            Event::Widget(number, of_team, phase) => drop(self.widgets.insert(*number, (*of_team, *phase))),
            Event::WidgetGone(number) => drop(self.widgets.remove(number)),
            Event::Subscribe => {}
        }
    }

    /// The counts of the waves, and the orphans, computed from everything that exists.
    fn counts(&self) -> ([[usize; 5]; 3], usize) {
        let team: Vec<usize> = self.widgets.values().filter(|(of_team, _)| *of_team).map(|(_, phase)| *phase).collect();
        let broken = team.contains(&2);
        let done = !team.is_empty() && team.iter().all(|phase| *phase == 0);
        let good = (0..3).filter(|number| self.maps.get(number) == Some(&true)).count();
        let of_phase = |wanted: usize| {
            (0..3).filter(|number| self.widgets.get(number).is_some_and(|(_, phase)| *phase == wanted)).count()
        };
        let waves = [
            [1, 0, usize::from(done), usize::from(broken), 0],
            [3, 0, good, 0, 3 - good],
            [3, 0, of_phase(0), of_phase(2), 0],
        ];
        (waves, usize::from(self.maps.contains_key(&3)))
    }
}

fn report(fixture: &mut Fixture, event: &Event) -> Wake {
    let text = |wanted: bool| if wanted { "rain" } else { "sun" };
    match event {
        Event::Map(number, wanted) => fixture.report(&map("p", &format!("m{number}"), text(*wanted))),
        Event::MapGone(number) => fixture.report_gone(&map("p", &format!("m{number}"), "")),
        Event::Widget(number, of_team, phase) => {
            let ready = ["True", "False", "False"][*phase];
            let mut object = widget(&format!("w{number}"), ready);
            object["metadata"]["labels"] = json!({ "team": if *of_team { "a" } else { "b" } });
            object["status"]["phase"] = json!(PHASES[*phase]);
            if *phase == 2 {
                let stalled = json!({ "type": "Stalled", "status": "True", "reason": "Told" });
                object["status"]["conditions"] = json!([stalled]);
            }
            fixture.report(&object)
        }
        Event::WidgetGone(number) => fixture.report_gone(&widget(&format!("w{number}"), "")),
        Event::Subscribe => {
            let again = fixture.subscribe("p", &waves());
            assert_eq!(again, BTreeSet::new(), "all of it is known");
            Wake::new()
        }
    }
}

proptest! {
    #[test]
    fn the_counts_are_those_of_someone_who_reads_everything_again(events in vec(event(), 0..60)) {
        let mut fixture = Fixture::with(&waves());
        fixture.sync("p");
        let mut world = World::default();
        for event in events {
            let before = world.counts();
            world.take(&event);
            let woken = report(&mut fixture, &event);
            let (waves, orphans) = world.counts();
            for (number, expected) in waves.into_iter().enumerate() {
                prop_assert_eq!(fixture.counts(number), expected, "wave {} after {:?}", number, event);
            }
            prop_assert_eq!(fixture.snapshot().orphan_count, orphans);
            prop_assert_eq!(fixture.snapshot().owned.len(), world.maps.len());
            if before != world.counts() {
                prop_assert_eq!(woken, wakes(&["p"]), "{:?} made a difference", event);
            }
        }
    }
}
