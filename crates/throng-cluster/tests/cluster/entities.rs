//! Entities on three nodes of one program: calls from anywhere, moves, and nodes that end.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use throng::prelude::*;
use throng_cluster::members::{Entry, Member, Members};
use throng_cluster::placement::{Copies, Shard};
use throng_cluster::{
    BoxFuture, Cluster, ClusterError, ClusterOptions, Incarnation, LogError, Logs, Membership,
    MemoryLogs, MemoryPeers, Role, ShardLog, ShardOptions,
};
use throng_durable::{Durable, DurableContext, Schedule};
use throng_store::Store;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::faults::FaultyLog;

const SHARDS: u16 = 8;

#[derive(Durable, Default, Serialize, Deserialize)]
#[durable(kind = "account", deps = Bank)]
struct Account {
    balance: i64,
    reminded: u32,
}

/// Whatever the handlers need: here the way to other accounts.
struct Bank(Arc<Mutex<Option<Cluster>>>);

#[process]
impl Account {
    #[message(derive(Serialize, Deserialize))]
    fn deposit(&mut self, amount: i64) -> i64 {
        self.balance += amount;
        self.balance
    }

    #[message(derive(Serialize, Deserialize))]
    fn balance(&self) -> i64 {
        self.balance
    }

    /// Takes the amount off, and then deposits it elsewhere.
    #[message(derive(Serialize, Deserialize))]
    async fn transfer(
        &mut self,
        amount: i64,
        to: String,
        cx: &mut Context<Self>,
    ) -> Result<i64, String> {
        let cluster = cx.deps().0.lock().unwrap().clone().unwrap();
        let to = cluster.entity::<Account>(to);
        self.balance -= amount;
        to.deposit(amount).within(Duration::from_secs(2)).await.map_err(|error| error.to_string())
    }

    /// Deposits what was deposited in an earlier turn of this account, whose commit may be under way.
    #[message(derive(Serialize, Deserialize))]
    async fn pass_on(&mut self, to: String, cx: &mut Context<Self>) -> Result<i64, String> {
        let cluster = cx.deps().0.lock().unwrap().clone().unwrap();
        let deposit = cluster.entity::<Account>(to).deposit(self.balance);
        deposit.within(Duration::from_secs(5)).await.map_err(|error| error.to_string())
    }

    /// Reaches for another entity by the node of its own shard.
    #[message(derive(Serialize, Deserialize))]
    async fn reach(&mut self, key: String, cx: &mut Context<Self>) -> String {
        match cx.node().entity::<Account>(key).balance().await {
            Ok(balance) => balance.to_string(),
            Err(error) => error.to_string(),
        }
    }

    #[message(derive(Serialize, Deserialize))]
    fn remind(&mut self, after: Duration, cx: &mut Context<Self>) {
        cx.remind("once", Schedule::after(after), Due {});
    }

    #[message(durable)]
    fn due(&mut self) {
        self.reminded += 1;
    }

    #[message(derive(Serialize, Deserialize))]
    fn reminded(&self) -> u32 {
        self.reminded
    }
}

/// A message that no kind accepts from other nodes.
struct Local;

impl Message for Local {
    type Reply = ();
}

impl Handle<Local> for Account {
    async fn handle(&mut self, _: Local, _: &mut Context<Self>) {}
}

/// The logs that all nodes share, by a way of each node that a test can cut.
#[derive(Clone, Default)]
struct Ways {
    logs: MemoryLogs,
    ways: Arc<Mutex<Vec<FaultyLog>>>,
}

impl Logs for Ways {
    fn shard(&self, shard: Shard) -> BoxFuture<Result<Arc<dyn ShardLog>, LogError>> {
        let way = FaultyLog::new(&self.logs.log(shard), u64::from(shard.0), 0);
        self.ways.lock().unwrap().push(way.clone());
        Box::pin(async move { Ok(Arc::new(way) as Arc<dyn ShardLog>) })
    }
}

struct TestNode {
    cluster: Cluster,
    logs: Ways,
    me: Incarnation,
}

/// Three nodes, and what they share.
struct Net {
    directory: TempDir,
    runtime: RuntimeHandle,
    logs: MemoryLogs,
    peers: MemoryPeers,
    members: watch::Sender<Arc<Members>>,
    nodes: Vec<TestNode>,
    incarnations: AtomicU64,
    /// The last report of each node on each shard.
    reports: Reports,
}

type Reports = Arc<Mutex<HashMap<(Incarnation, Shard), Option<Duration>>>>;

impl Net {
    fn new(runtime: &RuntimeHandle) -> Net {
        let mut net = Net {
            directory: tempfile::tempdir().unwrap(),
            runtime: runtime.clone(),
            logs: MemoryLogs::default(),
            peers: MemoryPeers::default(),
            members: watch::Sender::default(),
            nodes: Vec::new(),
            incarnations: AtomicU64::new(1),
            reports: Reports::default(),
        };
        (0..3).for_each(|number| net.start(number));
        net.plan(|shard| (shard.0 % 3) as usize);
        net
    }

    fn name(number: usize) -> String {
        format!("node-{number}")
    }

    /// Starts a node, again if it has run before.
    fn start(&mut self, number: usize) {
        let me = Incarnation(u128::from(self.incarnations.fetch_add(1, Ordering::Relaxed)));
        let member = Member::new(Net::name(number), format!("{number}:1"));
        self.read(Entry::Join(me, member));
        // A node that was only cut off has its directory open still, as no crashed one has.
        let mut options = ClusterOptions::new("test", self.directory.path().join(me.to_string()));
        options.shards = SHARDS;
        options.shard = ShardOptions {
            store: Store::options().map_bytes(16 << 20),
            append_within: Duration::from_millis(100),
            poll_every: Duration::from_millis(20),
            retry_after: Duration::from_millis(5),
            ..ShardOptions::default()
        };
        let membership = Membership {
            name: Net::name(number),
            me,
            members: self.members.subscribe(),
            report: Box::new({
                let reports = self.reports.clone();
                move |shard, lag| _ = reports.lock().unwrap().insert((me, shard), lag)
            }),
        };
        let logs = Ways { logs: self.logs.clone(), ways: Arc::default() };
        let peers = Arc::new(self.peers.clone());
        let cluster =
            Cluster::start(options, membership, &self.runtime, Arc::new(logs.clone()), peers);
        let way = Arc::new(Mutex::new(Some(cluster.clone())));
        cluster
            .kind::<Account>(Bank(way))
            .accepts::<Deposit>("deposit")
            .accepts::<Balance>("balance")
            .accepts::<Transfer>("transfer")
            .accepts::<PassOn>("pass_on")
            .accepts::<Reach>("reach")
            .accepts::<Remind>("remind")
            .accepts::<Reminded>("reminded");
        cluster.serve();
        self.peers.add(me, &cluster);
        let node = TestNode { cluster, logs, me };
        match self.nodes.get_mut(number) {
            Some(before) => *before = node,
            None => self.nodes.push(node),
        }
    }

    fn read(&self, entry: Entry) {
        self.members.send_modify(|members| {
            let mut next = Members::clone(members);
            assert!(next.read(&entry.encode()).is_some(), "{entry:?} does not count");
            *members = Arc::new(next);
        });
    }

    /// Gives each shard an owner, and the next node as a standby.
    fn plan(&self, owner: impl Fn(Shard) -> usize) {
        let copies = |shard: Shard| {
            let owner = owner(shard);
            Copies { owner: Net::name(owner), standbys: vec![Net::name((owner + 1) % 3)] }
        };
        let plan = (0..SHARDS).map(Shard).map(|shard| (shard, copies(shard))).collect();
        let number = self.members.borrow().plans() + 1;
        self.read(Entry::Plan(number, plan));
    }

    fn account(&self, from: usize, key: &str) -> throng_cluster::ClusterEntity<Account> {
        self.nodes[from].cluster.entity(key)
    }

    /// Cuts a node off from logs and peers, as a crash does.
    fn cut(&self, number: usize) {
        let node = &self.nodes[number];
        node.logs.ways.lock().unwrap().iter().for_each(|way| way.cut(true));
        self.peers.remove(node.me);
    }
}

/// Calls until a node answers: a test may be ahead of the claims.
async fn patiently<T, F>(mut call: impl FnMut() -> F) -> T
where
    F: Future<Output = Result<T, ClusterError>>,
{
    let since = Instant::now();
    loop {
        match call().await {
            Ok(reply) => return reply,
            Err(error) => assert!(since.elapsed() < Duration::from_secs(30), "{error}"),
        }
        sleep(Duration::from_millis(10)).await;
    }
}

fn test<F: Future<Output = ()>>(body: impl FnOnce(Net) -> F) {
    let runtime = Runtime::builder().workers(2).start().unwrap();
    runtime.block_on(async |handle| body(Net::new(handle)).await);
}

#[test]
fn an_entity_answers_from_every_node_and_has_one_state() {
    test(async |net| {
        for number in 0..30 {
            let key = format!("account {number}");
            for from in 0..3 {
                let balance = net.account(from, &key).deposit(1).within(Duration::from_secs(20));
                assert_eq!(balance.await, Ok(from as i64 + 1), "{key} from {from}");
            }
        }
        let shards: usize = net.nodes.iter().map(|node| node.cluster.hosted().len()).sum();
        assert_eq!(shards, usize::from(SHARDS) * 2, "owner and standby of each");
        let owned =
            |node: &TestNode| node.cluster.hosted().iter().filter(|shard| shard.serves).count();
        assert_eq!(net.nodes.iter().map(owned).sum::<usize>(), usize::from(SHARDS));
    });
}

#[test]
fn shards_move_under_load_without_an_error_or_a_lost_turn() {
    test(async |net| {
        let net = Arc::new(net);
        patiently(|| net.account(0, "warm").deposit(1)).await;
        let keys: Vec<String> = (0..24).map(|number| format!("account {number}")).collect();
        let callers: Vec<_> = keys
            .iter()
            .enumerate()
            .map(|(number, key)| {
                let (net, key) = (net.clone(), key.clone());
                tokio::spawn(async move {
                    let account = net.account(number % 3, &key);
                    let mut deposits = 0;
                    let since = Instant::now();
                    while since.elapsed() < Duration::from_secs(2) {
                        deposits += 1;
                        let balance = account.deposit(1).within(Duration::from_secs(20)).await;
                        assert_eq!(balance, Ok(deposits), "{key}");
                    }
                    deposits
                })
            })
            .collect();
        for round in 1..4 {
            sleep(Duration::from_millis(400)).await;
            net.plan(|shard| (usize::from(shard.0) + round) % 3);
        }
        let mut all = 0;
        for (key, caller) in keys.iter().zip(callers) {
            let deposits = caller.await.unwrap();
            assert_eq!(net.account(0, key).balance().await, Ok(deposits), "{key}");
            all += deposits;
        }
        assert!(all > 100, "{all} deposits");
        let owned = net.nodes.iter().flat_map(|node| node.cluster.hosted());
        let terms: u64 = owned.filter_map(|shard| Some(shard.copy?.tail.epoch)).max().unwrap();
        assert!(terms >= 3, "the shards have moved");
    });
}

#[test]
fn another_node_has_all_that_a_node_acknowledged_before_it_was_lost() {
    test(async |mut net| {
        let keys: Vec<String> = (0..20).map(|number| format!("account {number}")).collect();
        for key in &keys {
            patiently(|| net.account(1, key).deposit(7).once("first")).await;
        }
        net.cut(0);
        let (lost, members) = (net.nodes[0].me, net.members.borrow().clone());
        net.read(Entry::Expire(lost, members.nodes()[&lost].renewal));
        net.plan(|shard| 1 + usize::from(shard.0) % 2);
        for key in &keys {
            // The client of a call without an answer repeats it.
            assert_eq!(patiently(|| net.account(1, key).deposit(7).once("first")).await, 7);
            assert_eq!(patiently(|| net.account(2, key).balance()).await, 7, "{key}");
        }
        // The node comes back under its name.
        net.start(0);
        net.plan(|shard| usize::from(shard.0) % 3);
        for key in &keys {
            assert_eq!(patiently(|| net.account(0, key).balance()).await, 7, "{key}");
        }
    });
}

#[test]
fn a_message_that_is_not_accepted_is_refused_also_where_its_entity_is() {
    test(async |net| {
        for from in 0..3 {
            let refused = net.account(from, "ann").call(Local).await;
            assert!(matches!(refused, Err(ClusterError::NotAccepted { kind: "account", .. })));
            let unsent = net.account(from, "ann").send(Local).unwrap_err();
            assert!(unsent.error.to_string().contains("accepts"), "{unsent}");
        }
        let invalid = patiently(|| async {
            match net.account(0, "").balance().await {
                Err(ClusterError::Unavailable(reason)) => Err(ClusterError::Unavailable(reason)),
                outcome => Ok(outcome),
            }
        });
        assert!(matches!(invalid.await, Err(ClusterError::Refused(_))));
    });
}

/// Keys of two accounts on different shards.
fn two_shards(net: &Net) -> [String; 2] {
    let shard = |key: &str| net.account(0, key).shard();
    let other = (0..).map(|number| number.to_string()).find(|key| shard(key) != shard("ann"));
    ["ann".into(), other.unwrap()]
}

#[test]
fn a_handler_calls_entities_of_other_shards_by_the_cluster_and_not_by_its_node() {
    test(async |net| {
        let [ann, bob] = two_shards(&net);
        patiently(|| net.account(0, &ann).deposit(100)).await;
        let transferred = patiently(|| net.account(1, &ann).transfer(30, bob.clone())).await;
        assert_eq!(transferred, Ok(30));
        assert_eq!(patiently(|| net.account(2, &ann).balance()).await, 70);
        let reached = patiently(|| net.account(0, &ann).reach(bob.clone())).await;
        assert!(reached.contains("another shard"), "{reached}");
        let own = patiently(|| net.account(0, &ann).reach(ann.clone() + "")).await;
        assert!(own.contains("cycle"), "{own}");
    });
}

#[test]
fn a_call_of_a_handler_leaves_its_shard_when_earlier_turns_are_published() {
    test(async |net| {
        let [ann, bob] = two_shards(&net);
        patiently(|| net.account(0, &ann).deposit(1)).await;
        patiently(|| net.account(0, &bob).deposit(1)).await;
        let shard = net.account(0, &ann).shard();
        let owner = net.nodes.iter().find(|node| {
            node.cluster.hosted().iter().any(|hosted| hosted.shard == shard && hosted.serves)
        });
        let ways = owner.unwrap().logs.ways.lock().unwrap().clone();
        let cluster = owner.unwrap().cluster.clone();
        ways.iter().for_each(|way| way.cut(true));
        // The first deposit cannot be published, so what follows from it must not leave.
        let deposit = tokio::spawn({
            let ann = cluster.entity::<Account>(&ann);
            async move { ann.deposit(1_000).await }
        });
        sleep(Duration::from_millis(50)).await;
        let passed_on = tokio::spawn({
            let ann = cluster.entity::<Account>(&ann);
            let bob = bob.clone();
            async move { ann.pass_on(bob).within(Duration::from_secs(8)).await }
        });
        sleep(Duration::from_millis(300)).await;
        let owner_of_bob = net.nodes.iter().find(|node| {
            node.cluster
                .hosted()
                .iter()
                .any(|hosted| hosted.shard == net.account(0, &bob).shard() && hosted.serves)
        });
        let bobs = owner_of_bob.unwrap().cluster.entity::<Account>(&bob).balance().await;
        assert_eq!(bobs, Ok(1), "the deposit has left before it was published");
        ways.iter().for_each(|way| way.cut(false));
        // Once the log is back, the outcome of the deposit decides.
        let (deposited, passed_on) = (deposit.await.unwrap(), passed_on.await.unwrap());
        let kept = deposited.is_ok();
        let balance = patiently(|| net.account(2, &bob).balance()).await;
        match passed_on {
            Ok(Ok(_)) => assert!(kept && balance == 1_002, "{balance}"),
            _ => assert_eq!(balance, 1, "{deposited:?}, {passed_on:?}"),
        }
    });
}

#[test]
fn a_reminder_comes_on_the_node_that_owns_the_shard_when_it_is_due() {
    test(async |net| {
        patiently(|| net.account(0, "ann").remind(Duration::from_millis(600))).await;
        net.plan(|shard| (usize::from(shard.0) + 1) % 3);
        while patiently(|| net.account(1, "ann").reminded()).await == 0 {
            sleep(Duration::from_millis(20)).await;
        }
        sleep(Duration::from_millis(300)).await;
        assert_eq!(patiently(|| net.account(2, "ann").reminded()).await, 1);
    });
}

#[test]
fn a_node_that_leaves_hands_its_shards_over() {
    test(async |net| {
        for number in 0..20 {
            patiently(|| net.account(0, &number.to_string()).deposit(3)).await;
        }
        net.plan(|shard| 1 + usize::from(shard.0) % 2);
        let own = |is_well: bool| {
            let (reports, me) = (net.reports.lock().unwrap(), net.nodes[0].me);
            reports
                .iter()
                .filter(|((node, _), lag)| *node == me && lag.is_some() == is_well)
                .count()
        };
        assert!(own(true) > 0);
        net.nodes[0].cluster.leave(Duration::ZERO).await;
        assert!(net.nodes[0].cluster.hosted().is_empty());
        // Copies that are gone are no candidates.
        assert_eq!(own(true), 0);
        assert!(own(false) > 0);
        for number in 0..20 {
            assert_eq!(patiently(|| net.account(1, &number.to_string()).balance()).await, 3);
        }
        let roles = net.nodes[1..].iter().flat_map(|node| node.cluster.hosted());
        let owners = roles.filter(|shard| {
            shard.copy.as_ref().is_some_and(|copy| matches!(copy.role, Role::Owner { .. }))
        });
        assert_eq!(owners.count(), usize::from(SHARDS));
    });
}
