//! `banking`: a teller has money transferred between accounts, each of which waits for the acknowledgement
//! of a transfer before it does anything else.
//!
//! ```text
//! teller ── transfer ─→ source ── deposit ─→ destination
//!                       source ←── acknowledge ──┘              others wait in the source's stash
//! teller ←──── done ─── source
//! ```
//!
//! - All transfers are sent at once. The destination has a greater index than the source, so that no two
//!   accounts wait for each other. As in Savina deposits wait in the stash as well.
//! - An account must have a single transfer open, and the acknowledgement must be that transfer's. The sum of
//!   all balances must not change.

use std::collections::VecDeque;

use super::*;

pub(crate) struct Banking;

impl Banking {
    /// Number of accounts: two at least, as a transfer needs two.
    fn accounts(settings: &Settings) -> u64 {
        settings.get("accounts").max(2)
    }
}

impl OnActors for Banking {
    async fn measure<H: ActorHost>(host: H, settings: Settings) -> Measured {
        let (transfers, accounts) = (settings.count, Banking::accounts(&settings));
        let make = |reporter| Teller::<H> {
            count: accounts,
            transfers,
            accounts: Vec::new(),
            balances: 0,
            report: Report::default(),
            reporter,
        };
        let (report, mut outcome) = measure(host, make).await;
        outcome.check("transfers completed", report.transfers, transfers);
        outcome.check("the sum of their numbers", report.numbers, sum_below(transfers));
        outcome.check("accounts that reported", report.accounts, accounts);
        outcome.check("the sum of all balances", report.balances, accounts * OPENING);
        outcome.check("transfers beside another, or out of turn", report.wrong, 0);
        Ok(outcome)
    }
}

const OPENING: u64 = 1_000_000;

const LARGEST: u64 = 1000;

#[derive(Default)]
struct Report {
    transfers: u64,
    numbers: u64,
    accounts: u64,
    balances: u64,
    wrong: u64,
}

struct Teller<H: ActorHost> {
    count: u64,
    transfers: u64,
    accounts: Vec<H::ActorAddress<Account<H>>>,
    balances: i64,
    report: Report,
    reporter: Reporter<Report>,
}

enum ToTeller {
    Done { number: u64 },
    Closed { balance: i64, wrong: u64 },
}

impl<H: ActorHost> Actor<H> for Teller<H> {
    type Message = ToTeller;

    fn started(&mut self, context: &mut impl ActorContext<H, Self>) {
        for _ in 0..self.count {
            let (teller, balance) = (context.address(), OPENING as i64);
            let account = Account { teller, balance, open: None, stash: VecDeque::new(), wrong: 0 };
            self.accounts.push(context.start(account));
        }
        let mut random = Random::of(0);
        for number in 0..self.transfers {
            let source = random.below((self.count / 10 * 8).max(1));
            let destination = source + random.below(self.count - source).max(1);
            let amount = random.below(LARGEST) as i64 + 1;
            let destination = self.accounts[destination as usize].clone();
            let transfer = ToAccount::Transfer { number, amount, destination };
            H::tell(&self.accounts[source as usize], transfer);
        }
    }

    fn handle(&mut self, message: ToTeller, context: &mut impl ActorContext<H, Self>) {
        match message {
            ToTeller::Done { number } => {
                self.report.transfers += 1;
                self.report.numbers += number;
                if self.report.transfers == self.transfers {
                    self.accounts.iter().for_each(|account| H::tell(account, ToAccount::Close));
                }
            }
            ToTeller::Closed { balance, wrong } => {
                self.report.accounts += 1;
                self.report.wrong += wrong;
                self.balances += balance;
                if self.report.accounts == self.count {
                    self.report.balances = u64::try_from(self.balances).unwrap_or_default();
                    self.reporter.report(std::mem::take(&mut self.report));
                    context.stop();
                }
            }
        }
    }
}

struct Account<H: ActorHost> {
    teller: H::ActorAddress<Teller<H>>,
    balance: i64,
    /// Number of the transfer whose acknowledgement the account waits for.
    open: Option<u64>,
    stash: VecDeque<ToAccount<H>>,
    /// Transfers that began beside another, and acknowledgements of a transfer that is not open.
    wrong: u64,
}

enum ToAccount<H: ActorHost> {
    Transfer { number: u64, amount: i64, destination: H::ActorAddress<Account<H>> },
    Deposit { number: u64, amount: i64, source: H::ActorAddress<Account<H>> },
    Acknowledge { number: u64 },
    Close,
}

impl<H: ActorHost> Actor<H> for Account<H> {
    type Message = ToAccount<H>;

    fn handle(&mut self, message: ToAccount<H>, context: &mut impl ActorContext<H, Self>) {
        match message {
            ToAccount::Acknowledge { number } => {
                self.wrong += u64::from(self.open.take() != Some(number));
                H::tell(&self.teller, ToTeller::Done { number });
                while self.open.is_none()
                    && let Some(message) = self.stash.pop_front()
                {
                    self.handle(message, context);
                }
            }
            message if self.open.is_some() => self.stash.push_back(message),
            ToAccount::Transfer { number, amount, destination } => {
                self.balance -= amount;
                self.wrong += u64::from(self.open.replace(number).is_some());
                let source = context.address();
                H::tell(&destination, ToAccount::Deposit { number, amount, source });
            }
            ToAccount::Deposit { number, amount, source } => {
                self.balance += amount;
                H::tell(&source, ToAccount::Acknowledge { number });
            }
            ToAccount::Close => {
                let (balance, wrong) = (self.balance, self.wrong);
                H::tell(&self.teller, ToTeller::Closed { balance, wrong });
                context.stop();
            }
        }
    }
}
