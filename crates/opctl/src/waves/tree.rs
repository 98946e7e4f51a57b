//! A plan as a tree of its waves.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use kube::ResourceExt;
use opcore::conditions;
use opcore::duration::Span;
use wave_orchestrator::api::v1alpha1::{NotReady, PlanPhase, WavePhase, WavePlan, WaveStatus};

use super::list::phase_words;
use super::picture::Picture;
use super::plans::current;
use crate::output::{Line, Paint, age, table};

/// The circumstances in which a plan is shown.
#[derive(Clone, Debug)]
pub(super) struct View {
    pub now: Timestamp,
    pub zone: TimeZone,
    pub paint: Paint,
    /// Whether it is redrawn every second: symbols of running waves then turn.
    pub live: bool,
}

/// A plan as a tree of its waves. The lines of waves that are through are spare.
pub(super) fn tree(plan: &WavePlan, view: &View) -> Vec<Line> {
    let picture = Picture::of(plan, view.now);
    let line = |text: String| Line { text, spare: false };
    let mut lines: Vec<Line> = head(&picture, view).into_iter().map(line).collect();
    lines.push(line(String::new()));

    let branches = Branches::of(&picture);
    let cells: Vec<Vec<String>> = branches.all.iter().map(|branch| row(&picture, branch, view)).collect();
    let mut rows = table(&["WAVE", "STATUS", "READY", "TIME", "DEADLINE", "SLACK", ""], &cells).into_iter();
    lines.extend(rows.next().map(|header| line(view.paint.faint(header))));
    for (branch, row) in branches.all.iter().zip(rows) {
        let wave = &picture.statuses[branch.wave];
        lines.push(Line { text: row, spare: wave.phase.is_through() });
        for lack in &wave.not_ready {
            lines.push(line(format!("{}    {}", view.paint.faint(&branch.below), not_ready_words(lack, view.paint))));
        }
    }
    lines.push(line(String::new()));
    lines.push(line(format!("★ critical path, {} in all", age(picture.path.total.as_duration()))));
    lines
}

/// The lines about the plan as a whole.
fn head(picture: &Picture<'_>, view: &View) -> Vec<String> {
    let (plan, paint) = (picture.plan, view.paint);
    let name = paint.strong(plan.name_any());
    let Some(status) = &plan.status else {
        let words = "The operator has not reconciled this plan yet: is wave-orchestrator running?";
        return vec![format!("{name}   {}", paint.odd("Unknown")), words.to_owned()];
    };
    let phase = status.phase.map_or_else(|| paint.odd("Unknown"), |phase| phase_words(phase, paint));
    let through = picture.statuses.iter().filter(|wave| wave.phase.is_through()).count();
    let mut parts = vec![format!("{name}   {phase}   {through}/{} waves", picture.statuses.len())];
    if let Some(rollout) = &status.rollout {
        let elapsed = age(picture.path.elapsed.as_duration());
        parts.push(match rollout.finished_at {
            Some(_) => format!("rollout {} took {elapsed}", rollout.number),
            None => format!("rollout {} for {elapsed}", rollout.number),
        });
    }
    if status.phase == Some(PlanPhase::Running) {
        let remaining = picture.path.remaining;
        // What never ran is taken to last as long as it may.
        let guessed = picture.statuses.iter().any(|wave| !wave.phase.is_through() && wave.usual.is_none());
        let about = if guessed { "at most" } else { "about" };
        parts.push(format!("{about} {} left", age(remaining.as_duration())));
        let eta = remaining.after(view.now).to_zoned(view.zone.clone());
        parts.push(format!("ETA {}", eta.strftime("%H:%M:%S")));
    }
    let mut lines = vec![parts.join(", ")];
    let message = conditions::find(&status.conditions, conditions::READY).map(|condition| condition.message.clone());
    lines.extend(message.filter(|message| !message.is_empty()));
    if current(plan).is_none() {
        lines.push(paint.odd("The spec has changed, and the operator has not reconciled the change yet."));
    }
    lines
}

/// A wave in its place in the tree.
struct Branch {
    wave: usize,
    /// What stands before its name.
    trunk: String,
    /// What stands before what is said below it.
    below: String,
}

#[derive(Default)]
struct Branches {
    all: Vec<Branch>,
}

impl Branches {
    fn of(picture: &Picture<'_>) -> Self {
        let mut children: Vec<Vec<usize>> = vec![Vec::new(); picture.statuses.len()];
        let mut roots = Vec::new();
        for &number in &picture.graph.order {
            match picture.parent(number) {
                Some(parent) => children[parent].push(number),
                None => roots.push(number),
            }
        }
        let mut branches = Self::default();
        for root in roots {
            branches.grow(root, String::new(), "", &children);
        }
        branches
    }

    fn grow(&mut self, wave: usize, trunk: String, beside: &str, children: &[Vec<usize>]) {
        let below = if children[wave].is_empty() { format!("{beside}  ") } else { format!("{beside}│ ") };
        self.all.push(Branch { wave, trunk, below });
        let last = children[wave].len().saturating_sub(1);
        for (number, child) in children[wave].iter().enumerate() {
            let (turn, on) = if number == last { ("└─", "  ") } else { ("├─", "│ ") };
            self.grow(*child, format!("{beside}{turn}"), &format!("{beside}{on}"), children);
        }
    }
}

fn row(picture: &Picture<'_>, branch: &Branch, view: &View) -> Vec<String> {
    let (number, paint) = (branch.wave, view.paint);
    let wave = &picture.statuses[number];
    let coloured = |text: &str| in_colour(wave.phase, text, paint);
    let star = if picture.is_critical(number) { " ★" } else { "" };
    let symbol = coloured(symbol(wave.phase, view));
    let name = if wave.phase == WavePhase::Running { paint.strong(&wave.name) } else { wave.name.clone() };
    let slack = picture.slack(number).filter(|slack| *slack > Span::default() && wave.phase != WavePhase::Skipped);
    vec![
        format!("{}{symbol} {name}{star}", paint.faint(&branch.trunk)),
        coloured(wave.phase.as_str()),
        if wave.total == 0 { "-".to_owned() } else { format!("{}/{}", wave.ready, wave.total) },
        time(picture, number, view),
        deadline(wave, view),
        slack.map(|slack| age(slack.as_duration())).unwrap_or_default(),
        remarks(picture, number, view),
    ]
}

/// How long a wave took, has taken, or is expected to take.
fn time(picture: &Picture<'_>, number: usize, view: &View) -> String {
    let wave = &picture.statuses[number];
    let since = |start: Timestamp| age(Span::between(start, view.now).as_duration());
    match (wave.phase, wave.started_at) {
        (WavePhase::Ready, _) => wave.duration.map(|took| age(took.as_duration())).unwrap_or_default(),
        (WavePhase::Skipped, _) => String::new(),
        (WavePhase::Running | WavePhase::Failed | WavePhase::TimedOut, Some(started)) => since(started),
        _ => {
            let expected = match wave.usual {
                Some(usual) => format!("~{}", age(usual.as_duration())),
                None => format!("≤{}", age(picture.timeout(number))),
            };
            view.paint.faint(expected)
        }
    }
}

fn deadline(wave: &WaveStatus, view: &View) -> String {
    match (wave.phase, wave.deadline) {
        (WavePhase::Running, Some(deadline)) => {
            format!("in {}", age(Span::between(view.now, deadline).as_duration()))
        }
        (WavePhase::TimedOut, Some(deadline)) => {
            view.paint.bad(format!("{} ago", age(Span::between(deadline, view.now).as_duration())))
        }
        _ => String::new(),
    }
}

/// Remarks about a wave.
fn remarks(picture: &Picture<'_>, number: usize, view: &View) -> String {
    let wave = &picture.statuses[number];
    let mut remarks = Vec::new();
    match wave.phase {
        phase if !wave.waiting_for.is_empty() => {
            remarks.push(format!("{} {}", waiting_words(phase), wave.waiting_for.join(", ")));
        }
        // A tree has room for one of the waves that it depends on.
        _ if picture.graph.before[number].len() > 1 => {
            let names: Vec<&str> = picture.wave(number).depends_on.iter().map(|on| on.wave.as_str()).collect();
            remarks.push(format!("after {}", names.join(", ")));
        }
        _ => {}
    }
    if wave.forced {
        remarks.push("forced".to_owned());
    }
    if wave.attempts > 0 {
        remarks.push(format!("attempt {}", wave.attempts + 1));
    }
    if let Some(at) = wave.retry_at {
        remarks.push(format!("again in {}", age(Span::between(view.now, at).as_duration())));
    }
    view.paint.faint(remarks.join("; "))
}

/// The relation of a wave in this phase to the waves that it waits for.
pub(super) fn waiting_words(phase: WavePhase) -> &'static str {
    if phase == WavePhase::Blocked { "blocked by" } else { "waits for" }
}

/// What is not ready and why, in one line.
pub(super) fn not_ready_words(lack: &NotReady, paint: Paint) -> String {
    let reason = if lack.failed { paint.bad(&lack.reason) } else { paint.odd(&lack.reason) };
    // Most messages name the object.
    if lack.message.contains(&lack.object) {
        format!("{reason}: {}", lack.message)
    } else {
        format!("{reason}: {}: {}", lack.object, lack.message)
    }
}

fn symbol(phase: WavePhase, view: &View) -> &'static str {
    const TURNING: [&str; 4] = ["◐", "◓", "◑", "◒"];
    match phase {
        WavePhase::Waiting => "·",
        WavePhase::Running if view.live => {
            TURNING[usize::try_from(view.now.as_second().rem_euclid(4)).unwrap_or_default()]
        }
        WavePhase::Running => "◐",
        WavePhase::Ready => "✔",
        WavePhase::Failed | WavePhase::TimedOut => "✘",
        WavePhase::Blocked => "⊘",
        WavePhase::Skipped => "↷",
        WavePhase::Suspended => "‖",
    }
}

/// A text in the colour of a phase.
pub(super) fn in_colour(phase: WavePhase, text: &str, paint: Paint) -> String {
    match phase {
        WavePhase::Waiting => paint.faint(text),
        WavePhase::Running => paint.busy(text),
        WavePhase::Ready => paint.good(text),
        WavePhase::Failed | WavePhase::TimedOut => paint.bad(text),
        WavePhase::Blocked | WavePhase::Skipped | WavePhase::Suspended => paint.odd(text),
    }
}
