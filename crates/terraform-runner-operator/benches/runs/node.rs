//! The sample on a node with real pods, compared with the same Job without the operator in the same run.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, bail};
use sandbox::{Options, Sandbox};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::moments::{Moments, median};
use crate::program::Program;
use crate::{by_hand, sample};

/// Enough for a median.
const ROUNDS: usize = 5;
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// The events: their names here and in the Job without the operator, and the second at which the reference timeline has
/// them. Sixty of its seconds are a sleep in its module, which is a variable in ours, and 0s.
const TIMELINE: [(&str, Option<&str>, Option<f64>); 13] = [
    ("workspace made", None, None),
    ("inputs kept", None, Some(2.0)),
    ("Job made", None, Some(2.5)),
    ("pod scheduled", None, Some(3.0)),
    ("store started", None, Some(5.0)),
    ("Terraform started", None, None),
    ("tofu init", Some("tofu init"), Some(10.0)),
    ("tofu plan", Some("tofu plan"), None),
    ("tofu apply", Some("tofu apply"), Some(35.0)),
    ("applied", Some("done"), Some(95.0)),
    ("report written", None, Some(97.0)),
    ("outputs kept", None, Some(109.0)),
    ("Ready", None, Some(110.0)),
];

pub struct Node {
    image_bytes: u64,
    ours: Vec<Moments>,
    by_hand: Vec<Moments>,
}

/// The image in which Terraform runs.
struct Image {
    name: String,
    bytes: u64,
    file: PathBuf,
}

pub async fn measure() -> anyhow::Result<Node> {
    let image = image().await?;
    let tools = by_hand::Tools::new()?;
    let sandbox = Sandbox::start(Options { node: true, ..Options::default() }).await?;
    crate::install(&sandbox).await?;
    sandbox.load_image_file(&image.file).await?;
    let client = sandbox.client().await?;
    let runner = format!("--runner-image={}", image.name);
    let _program = Program::start(&sandbox, &[&runner, "--runner-pull-policy=Never"]).await?;
    let mut node = Node { image_bytes: image.bytes, ours: Vec::new(), by_hand: Vec::new() };
    for round in 0..=ROUNDS {
        let namespace = sandbox.namespace("sample").await?;
        let sample = sample::measure(&client, &namespace).await?;
        let by_hand = by_hand::measure(&client, &sample, &tools).await?;
        // The first round reads the programs from the disk.
        if round > 0 {
            node.ours.push(sample.moments);
            node.by_hand.push(by_hand);
        }
    }
    Ok(node)
}

/// Builds it almost as for a release.
async fn image() -> anyhow::Result<Image> {
    let mut images = Command::new(Path::new(ROOT).join("hack/images"));
    let built =
        images.args(["--profile", "image", "tf-runner"]).stdin(Stdio::null()).stderr(Stdio::inherit()).output().await;
    let built = built.context("Cannot run hack/images")?;
    anyhow::ensure!(built.status.success(), "hack/images tf-runner failed; what it said is above.");
    let line = String::from_utf8(built.stdout)?;
    let [name, _, bytes, file] = line.trim_end().splitn(4, ' ').collect::<Vec<_>>()[..] else {
        bail!("hack/images said {line:?}, which is not one image.");
    };
    Ok(Image { name: name.to_owned(), bytes: bytes.parse()?, file: Path::new(ROOT).join(file) })
}

fn of(all: &[Moments], what: &str) -> anyhow::Result<Vec<f64>> {
    all.iter().map(|moments| moments.at(what)).collect()
}

fn usual(all: &[Moments], what: &str) -> f64 {
    of(all, what).map_or(f64::NAN, median)
}

impl Node {
    fn total(&self) -> f64 {
        usual(&self.ours, "Ready")
    }

    fn slowest(&self) -> f64 {
        of(&self.ours, "Ready").unwrap_or_default().into_iter().fold(0.0, f64::max)
    }

    /// The additional time until the last step is done, compared with the same Job without the operator; the cluster is
    /// notified later.
    fn overhead(&self) -> f64 {
        self.total() - usual(&self.by_hand, "done")
    }

    #[expect(clippy::cast_precision_loss, reason = "one decimal is shown")]
    fn megabytes(&self) -> f64 {
        self.image_bytes as f64 / 1e6
    }

    pub fn json(&self) -> Value {
        let timeline = TIMELINE.map(|(what, by_hand, _)| {
            let by_hand = by_hand.map(|by_hand| usual(&self.by_hand, by_hand));
            json!({ "what": what, "seconds": usual(&self.ours, what), "byHandSeconds": by_hand })
        });
        json!({
            "imageBytes": self.image_bytes, "timeline": timeline, "rounds": ROUNDS,
            "readySeconds": of(&self.ours, "Ready").unwrap_or_default(),
            "byHandSeconds": of(&self.by_hand, "done").unwrap_or_default(),
            "byHandEndedSeconds": of(&self.by_hand, "ended").unwrap_or_default(),
            "overheadSeconds": self.overhead(),
        })
    }

    pub fn check(&self) -> anyhow::Result<()> {
        for (what, by_hand, _) in TIMELINE {
            of(&self.ours, what)?;
            by_hand.map(|by_hand| of(&self.by_hand, by_hand)).transpose()?;
        }
        anyhow::ensure!(self.total() < crate::SAMPLE, "the sample takes longer than promised");
        anyhow::ensure!(self.overhead() < crate::OVERHEAD, "an apply takes longer than promised, beyond what it must");
        Ok(())
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (total, slowest) = (self.total(), self.slowest());
        writeln!(f, "image of tf-runner              {:>8.1} MB", self.megabytes())?;
        writeln!(
            f,
            "sample ready                    {total:>8.2} s    (slowest: {slowest:.2} s; promised: {} s)",
            crate::SAMPLE
        )?;
        let (done, ended) = (usual(&self.by_hand, "done"), usual(&self.by_hand, "ended"));
        writeln!(f, "  the same Job by hand          {done:>8.2} s    (reported in the cluster: {ended:.2} s)")?;
        writeln!(f, "  beyond it                     {:>8.2} s    (promised: {} s)", self.overhead(), crate::OVERHEAD)?;
        write!(f, "  seconds until                     ours   by hand   as it was")?;
        let cell = |seconds: Option<f64>| seconds.map_or_else(String::new, |seconds| format!("{seconds:.2}"));
        for (what, by_hand, seed) in TIMELINE {
            let by_hand = by_hand.map(|by_hand| usual(&self.by_hand, by_hand));
            let ours = usual(&self.ours, what);
            write!(f, "\n    {what:<28}{ours:>8.2}{:>10}{:>12}", cell(by_hand), cell(seed))?;
        }
        Ok(())
    }
}
