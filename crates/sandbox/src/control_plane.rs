//! A control plane: four processes, started in order, watched until each does its work. And a node, where
//! one is asked for: four more.

mod adding;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::Ipv4Addr;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use kube::Client;

use crate::binaries::Binaries;
use crate::home::Home;
use crate::image::{self, Image};
use crate::launch::{self, Call, Lifetime, Running};
use crate::node::{self, Enclosure, Network, Within, cgroup, remains, settings};
use crate::parts::{self, Work};
use crate::probe::{self, Probe};
use crate::process::{self, ProcessId};
use crate::{Component, Options, Part, Signal, flags, kubeconfig, ports};

/// How long a component may take to become ready. On two cores that compile something meanwhile the
/// slowest takes a tenth of this.
const PATIENCE: Duration = Duration::from_mins(2);

/// How often a start is repeated because another process was faster to take the port.
const PORT_ATTEMPTS: usize = 5;

/// Hears of a start as it proceeds.
pub(crate) trait Observer: Send + Sync {
    /// A process runs. Reported before anything else happens, so that it can be recorded.
    fn spawned(&self, _: Component, _: &ProcessId, _: u16) -> anyhow::Result<()> {
        Ok(())
    }

    /// A component does its work.
    fn ready(&self, _: Component, _: Duration) {}

    /// A part belongs to the sandbox.
    fn added(&self, _: Part) -> anyhow::Result<()> {
        Ok(())
    }
}

/// A listener that ignores everything.
pub(crate) struct Nobody;

impl Observer for Nobody {}

/// The processes of one sandbox. Dropped, it ends those it still holds.
pub(crate) struct ControlPlane {
    home: Home,
    binaries: Binaries,
    options: Options,
    lifetime: Lifetime,
    slots: Mutex<BTreeMap<Component, Slot>>,
    /// What a node stands on, once there is one.
    ground: OnceLock<Ground>,
}

struct Ground {
    enclosure: Enclosure,
    network: Network,
}

#[derive(Debug, Default)]
struct Slot {
    port: u16,
    running: Option<Running>,
}

/// Why a component is not ready.
enum Failure {
    PortTaken(u16),
    Other(anyhow::Error),
}

impl From<Failure> for anyhow::Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::PortTaken(port) => port_in_use(port),
            Failure::Other(error) => error,
        }
    }
}

impl ControlPlane {
    /// Starts one in an empty home and returns when it is ready to be used.
    ///
    /// Cancelled or failing, it ends what it started; the home is the caller's to remove.
    pub(crate) async fn start(
        home: Home,
        binaries: Binaries,
        options: Options,
        lifetime: Lifetime,
        observer: &dyn Observer,
    ) -> anyhow::Result<Self> {
        if let Some(port) = options.port
            && !ports::is_free(port)
        {
            return Err(port_in_use(port));
        }
        // Not on another thread: a cancelled start must not go on writing files behind our back.
        home.create()?;
        let plane = Self::new(home, binaries, options, lifetime);
        if plane.options.node {
            plane.lay_ground(observer).await?;
        }
        plane.home.pki().create(plane.network())?;
        flags::write_files(&plane.home, &plane.options)?;

        // Boxed: most sandboxes have no node, and need not make room for its start.
        tokio::try_join!(plane.start_api(observer), Box::pin(plane.start_runtime(observer)))?;
        tokio::try_join!(
            plane.bring_up(Component::ControllerManager, observer),
            plane.bring_up(Component::Scheduler, observer),
            Box::pin(plane.start_node(observer)),
        )?;
        probe::default_account(&plane.client().await?, "default").await?;
        for part in plane.options.with.clone() {
            Box::pin(plane.add(part, observer)).await?;
        }
        Ok(plane)
    }

    fn new(home: Home, binaries: Binaries, options: Options, lifetime: Lifetime) -> Self {
        Self { home, binaries, options, lifetime, slots: Mutex::default(), ground: OnceLock::new() }
    }

    async fn start_api(&self, observer: &dyn Observer) -> anyhow::Result<()> {
        self.bring_up(Component::Etcd, observer).await?;
        self.bring_up(Component::ApiServer, observer).await
    }

    /// The namespaces of a node, its control groups, and its wire to this machine.
    async fn lay_ground(&self, observer: &dyn Observer) -> anyhow::Result<()> {
        let started = Instant::now();
        cgroup::create(&self.home)?;
        self.spawn(Component::NodeInit, observer)?;
        let holder = self.processes().remove(&Component::NodeInit).context("node-init has ended")?;
        let enclosure = Enclosure { holder };
        let deadline = started + PATIENCE;
        while !enclosure.is_ready() {
            self.check_running(Component::NodeInit)?;
            if Instant::now() > deadline {
                bail!("node-init is not ready after {} s.{}", PATIENCE.as_secs(), self.last_words(Component::NodeInit));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let network = Network::connect(&self.home, enclosure.holder.pid)?;
        let _ = self.ground.set(Ground { enclosure, network });
        std::fs::write(remains::network_file(&self.home), network.index().to_string())?;
        settings::write(&self.home, network)?;
        observer.ready(Component::NodeInit, started.elapsed());
        Ok(())
    }

    /// What runs containers, with the images that every node has. It needs no API server.
    async fn start_runtime(&self, observer: &dyn Observer) -> anyhow::Result<()> {
        let Some(ground) = self.ground.get() else {
            return Ok(());
        };
        self.bring_up(Component::Containerd, observer).await?;
        for (name, program) in [(node::PAUSE_IMAGE, "pause"), (node::COREDNS_IMAGE, "coredns")] {
            let image = Image::new(name, self.binaries.get(program)?)?;
            let layout = tokio::task::spawn_blocking(move || image.build()).await??;
            image::load(layout, &ground.enclosure, &self.home).await?;
        }
        Ok(())
    }

    async fn start_node(&self, observer: &dyn Observer) -> anyhow::Result<()> {
        let Some(ground) = self.ground.get() else {
            return Ok(());
        };
        let client = self.client().await?;
        tokio::try_join!(
            self.bring_up(Component::Kubelet, observer),
            self.bring_up(Component::KubeProxy, observer),
            node::install_addons(&client, ground.network),
        )?;
        Ok(())
    }

    /// The network of the node, where there is one.
    fn network(&self) -> Option<Network> {
        self.ground.get().map(|ground| ground.network)
    }

    /// The namespaces of the node, where there is one.
    pub(crate) fn enclosure(&self) -> Option<&Enclosure> {
        self.ground.get().map(|ground| &ground.enclosure)
    }

    pub(crate) fn home(&self) -> &Home {
        &self.home
    }

    pub(crate) fn binaries(&self) -> &Binaries {
        &self.binaries
    }

    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    /// The processes that run.
    pub(crate) fn processes(&self) -> BTreeMap<Component, ProcessId> {
        let slots = self.slots();
        let running =
            slots.iter().filter_map(|(component, slot)| Some((*component, slot.running.as_ref()?.id.clone())));
        running.collect()
    }

    /// Lets the processes go on without us.
    pub(crate) fn detach(self) {
        self.slots().clear();
    }

    /// Ends a component and returns when it is gone.
    pub(crate) async fn stop(&self, component: Component, signal: Signal) -> anyhow::Result<()> {
        if let Component::Part(part) = component
            && !part.is_process()
        {
            bail!("{part} is not a process of its own: it cannot be stopped.");
        }
        let grace = match signal {
            Signal::Kill => Duration::ZERO,
            Signal::Term => Duration::from_secs(30),
        };
        self.end(component, grace).await
    }

    async fn end(&self, component: Component, grace: Duration) -> anyhow::Result<()> {
        let running = self.slots().get_mut(&component).and_then(|p| p.running.take());
        let Some(mut running) = running else {
            return Ok(());
        };
        let ended = tokio::task::spawn_blocking(move || {
            process::end(std::slice::from_ref(&running.id), grace)?;
            running.child.wait()
        });
        ended.await?.with_context(|| format!("Cannot stop {component}"))?;
        Ok(())
    }

    /// Ends a component if it runs, and starts it with the same port, data and certificates.
    pub(crate) async fn restart(&self, component: Component) -> anyhow::Result<()> {
        if component == Component::NodeInit {
            bail!("node-init cannot be restarted: with it everything on the node ends. Start another sandbox.");
        }
        // etcd waits seven seconds for its clients. What it has acknowledged is safe without.
        self.end(component, Duration::from_secs(2)).await?;
        self.spawn(component, &Nobody)?;
        self.until_ready(component).await?;
        if component == Component::Etcd {
            // The API server needs a moment to notice that its store is back.
            self.until_ready(Component::ApiServer).await?;
        }
        Ok(())
    }

    async fn client(&self) -> anyhow::Result<Client> {
        let mut config = kubeconfig::load(&self.home.kubeconfig()).await?;
        config.proxy_url = None;
        Ok(Client::try_from(config)?)
    }

    async fn bring_up(&self, component: Component, observer: &dyn Observer) -> anyhow::Result<()> {
        let started = Instant::now();
        let wanted = match component {
            Component::ApiServer => self.options.port,
            _ => None,
        };
        for _ in 0..PORT_ATTEMPTS {
            self.assign_port(component, wanted)?;
            self.spawn(component, observer)?;
            match self.until_ready(component).await {
                Ok(()) => {
                    observer.ready(component, started.elapsed());
                    return Ok(());
                }
                // Somebody was faster: another port, unless this one was asked for.
                Err(Failure::PortTaken(_)) if wanted.is_none() => {}
                Err(failure) => return Err(failure.into()),
            }
        }
        Err(anyhow!(
            "{component} found its port in use {PORT_ATTEMPTS} times, each time a new one: \
             something on this machine takes ports between 20000 and 30000."
        ))
    }

    fn assign_port(&self, component: Component, wanted: Option<u16>) -> anyhow::Result<()> {
        let port = match (component, wanted) {
            (_, Some(port)) => port,
            // The node has a network of its own, where these are free.
            (Component::Kubelet, _) => settings::KUBELET_PORT,
            (Component::KubeProxy, _) => settings::KUBE_PROXY_PORT,
            (Component::Containerd | Component::NodeInit, _) => 0,
            _ => ports::free()?,
        };
        self.slots().entry(component).or_default().port = port;
        if let Component::Part(part) = component {
            self.prepare(part)?;
        }
        if component == Component::ApiServer {
            let pki = self.home.pki();
            let server = (self.address(component), port);
            kubeconfig::write(&self.home.kubeconfig(), &pki, "admin", server)?;
            let on_node = ["kubelet", "kube-proxy"].into_iter().filter(|_| self.options.node);
            for identity in ["controller-manager", "scheduler"].into_iter().chain(on_node) {
                kubeconfig::write(&self.home.kubeconfig_of(identity), &pki, identity, server)?;
            }
        }
        Ok(())
    }

    fn spawn(&self, component: Component, observer: &dyn Observer) -> anyhow::Result<()> {
        let call = self.call(component)?;
        let running = launch::start(component, &call, &self.home, self.lifetime)?;
        let id = running.id.clone();
        self.slots().entry(component).or_default().running = Some(running);
        observer.spawned(component, &id, self.port(component))
    }

    /// How a component is called, and from where.
    fn call(&self, component: Component) -> anyhow::Result<Call> {
        if component == Component::NodeInit {
            return Ok(Call { words: Enclosure::make(&self.home, &self.binaries)?, forks: true });
        }
        if let Component::Part(part) = component {
            let Work::Process { call, .. } = part.definition().work else {
                bail!("{part} is not a process of its own.");
            };
            return Ok(Call { words: call(&self.place(part))?, forks: false });
        }
        let within = match component {
            Component::Containerd | Component::Kubelet | Component::KubeProxy => Within::Node,
            // It makes volumes in directories of the node.
            Component::ControllerManager if self.options.node => Within::Files,
            _ => Within::Machine,
        };
        let mut words = self.enclosure().map(|enclosure| enclosure.enter(within)).unwrap_or_default();
        words.push(match component {
            // A package of the system brings it.
            Component::Containerd => component.name().into(),
            _ => self.binaries.get(component.name())?.into(),
        });
        let flags = flags::of(component, &self.home, &self.options, self.network(), |c| self.port(c));
        words.extend(flags.into_iter().map(OsString::from));
        Ok(Call { words, forks: within == Within::Node })
    }

    /// Where a component answers.
    fn address(&self, component: Component) -> Ipv4Addr {
        match (component, self.network()) {
            (Component::ApiServer, Some(network)) => network.host(),
            (Component::Part(_), network) => parts::address(network),
            (Component::Kubelet | Component::KubeProxy, Some(network)) => network.node(),
            _ => Ipv4Addr::LOCALHOST,
        }
    }

    async fn probe(&self, component: Component) -> anyhow::Result<Probe> {
        match (component, self.enclosure()) {
            (Component::Containerd, Some(enclosure)) => Ok(Probe::Socket(enclosure.file(settings::CONTAINERD_SOCKET))),
            (Component::Part(part), _) => match part.definition().work {
                Work::Process { health, .. } => Probe::part(health, (self.address(component), self.port(component))),
                Work::Pods(_) | Work::Images(_) | Work::Files { .. } => bail!("{part} is not a process of its own."),
            },
            _ => Probe::http(&self.home, component, (self.address(component), self.port(component))).await,
        }
    }

    async fn until_ready(&self, component: Component) -> Result<(), Failure> {
        let probe = self.probe(component).await.map_err(Failure::Other)?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.check_running(component)?;
            let Err(lack) = probe.ready().await else {
                return Ok(());
            };
            if Instant::now() > deadline {
                return Err(Failure::Other(anyhow!(
                    "{component} is not ready after {} s: {lack:#}.{}",
                    PATIENCE.as_secs(),
                    self.last_words(component)
                )));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn check_running(&self, component: Component) -> Result<(), Failure> {
        let ended = match self.slots().get_mut(&component).and_then(|p| p.running.as_mut()) {
            Some(running) => running.child.try_wait().map_err(|e| Failure::Other(e.into()))?,
            None => return Err(Failure::Other(anyhow!("{component} was stopped."))),
        };
        match ended {
            None => Ok(()),
            Some(_) if self.output(component).contains("address already in use") => {
                Err(Failure::PortTaken(self.port(component)))
            }
            Some(status) => Err(Failure::Other(anyhow!(
                "{component} ended with {status} before it was ready.{}",
                self.last_words(component)
            ))),
        }
    }

    fn output(&self, component: Component) -> String {
        let log = self.home.log(component);
        let slots = self.slots();
        let running = slots.get(&component).and_then(|p| p.running.as_ref());
        running.and_then(|r| r.output(&log).ok()).unwrap_or_default()
    }

    /// The end of a component's log, for an error that is read when the log is gone.
    fn last_words(&self, component: Component) -> String {
        let output = self.output(component);
        let lines: Vec<&str> = output.lines().collect();
        let last = &lines[lines.len().saturating_sub(12)..];
        if output.contains("no space left on device") {
            return format!(
                " No space is left on the disk for {}: free some, or set OPCORE_STATE (for tests TMPDIR) to a directory \
                 on a larger disk.",
                self.home.dir().display()
            );
        }
        if last.is_empty() {
            return " It wrote nothing to its log.".to_owned();
        }
        format!(" The end of its log:\n  {}", last.join("\n  "))
    }

    fn port(&self, component: Component) -> u16 {
        self.slots().get(&component).map_or(0, |p| p.port)
    }

    /// A panic elsewhere while the lock was held leaves the map whole: each change is one assignment.
    fn slots(&self) -> MutexGuard<'_, BTreeMap<Component, Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ControlPlane {
    /// The data goes too, so nobody needs time to write it.
    fn drop(&mut self) {
        let mut running: Vec<Running> = self.slots().values_mut().filter_map(|p| p.running.take()).collect();
        for part in &mut running {
            let _ = part.child.kill();
        }
        for part in &mut running {
            let _ = part.child.wait();
        }
    }
}

fn port_in_use(port: u16) -> anyhow::Error {
    anyhow!(
        "Port {port} is in use by another program: choose another one, or leave --port out to get \
         a free one."
    )
}
