//! A connection of the client of `http-social`: its users, their requests, and the checks of the answers.

use std::collections::HashSet;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use serde::Deserialize;
use tokio::net::TcpStream;

use super::axum::HELLO;
use super::population::{self, Population};
use crate::workloads::answer::{self, Answer, malformed};
use crate::workloads::message_node::Tokens;
use crate::workloads::records::Random;

/// Number of posts of a page, by default of the service.
const PAGE: usize = 20;

/// Number of posts of the largest page.
pub(super) const PAGE_MAX: usize = 100;

/// Shares of the requests of the mix, out of 100.
const TIMELINES: u64 = 80;
const PROFILES: u64 = 15;

/// Headers of every request, before its token.
const HOST: &str = "host: bench\r\nauthorization: Bearer ";

/// The server, as the client knows it.
#[derive(Clone)]
pub(super) struct Target {
    pub(super) address: SocketAddr,
    /// Whether the server answers every request with "hello".
    pub(super) is_hello: bool,
    /// Whether a user's home page is For you, in the place of the timeline.
    pub(super) is_for_you: bool,
    pub(super) population: Population,
    /// Id of the newest post of each user that was acknowledged or read, over all connections.
    pub(super) newest: Arc<[AtomicU64]>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Requests {
    /// The profile, and then the timeline, of each of its users.
    Each,
    Mix(u64),
    Reads(u64),
}

/// Nanoseconds of each request, and the number of wrong answers.
#[derive(Default)]
pub(super) struct Round {
    pub(super) reads: Vec<u64>,
    pub(super) posts: Vec<u64>,
    pub(super) wrong: u64,
}

struct User {
    number: u64,
    token: String,
    followed: Vec<u64>,
    posts: u64,
    timeline: Checked,
    profile: Checked,
}

/// The last page of a user that was found right. The same bytes need no second look, so the client takes less of the
/// processors that it shares with the server.
///
/// The page of a user who has posted since has another first post, which the callers check.
#[derive(Default)]
struct Checked {
    bytes: Vec<u8>,
    /// Id of the first post, or 0 if there is none.
    first: u64,
}

impl Checked {
    /// Returns the id of the first post of a page, or 0 if it has none; `None` if the page is wrong: it is malformed, its
    /// posts are out of order or not of `authors`, or `check` refuses it.
    fn first(
        &mut self,
        answer: Answer<'_>,
        authors: &[u64],
        check: impl FnOnce(&[u64], &Page<'_>) -> bool,
    ) -> Option<u64> {
        let is_known = !self.bytes.is_empty() && answer.body == self.bytes;
        if is_known && answer.status == 200 {
            return Some(self.first);
        }
        let page = page(answer)?;
        let ids: Option<Vec<u64>> = page.posts.iter().map(|post| post.check(authors)).collect();
        let ids = ids?;
        if !ids.is_sorted_by(|newer, older| newer > older) || !check(&ids, &page) {
            return None;
        }
        self.first = ids.first().copied().unwrap_or(0);
        self.bytes.clear();
        self.bytes.extend_from_slice(answer.body);
        Some(self.first)
    }
}

/// A connection and its users, whose requests are made on this connection only.
pub(super) struct Connection {
    target: Target,
    stream: TcpStream,
    users: Vec<User>,
    random: Random,
    request: Vec<u8>,
    answer: Vec<u8>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Page<'a> {
    #[serde(borrow)]
    posts: Vec<Post<'a>>,
    next_cursor: Option<&'a str>,
}

#[derive(Deserialize)]
struct Post<'a> {
    id: &'a str,
    author: &'a str,
    text: &'a str,
    time: u64,
}

impl Connection {
    pub(super) async fn open(
        target: Target,
        users: Range<u64>,
        index: u64,
    ) -> io::Result<Connection> {
        let stream = TcpStream::connect(target.address).await?;
        stream.set_nodelay(true)?;
        let tokens = Tokens::new();
        let users = users.map(|number| User {
            number,
            token: tokens.of(&population::name(number)),
            followed: target.population.followed(number),
            posts: target.population.posts,
            timeline: Checked::default(),
            profile: Checked::default(),
        });
        let (users, random) = (users.collect(), Random::new(index));
        let (request, answer) = (Vec::new(), Vec::new());
        Ok(Connection { target, stream, users, random, request, answer })
    }

    pub(super) async fn make(mut self, requests: Requests) -> io::Result<(Connection, Round)> {
        let mut round = Round::default();
        let count = match requests {
            Requests::Each => {
                for user in 0..self.users.len() {
                    round.wrong += u64::from(!self.read_profile(user).await?);
                    round.wrong += u64::from(!self.read_timeline(user).await?);
                }
                return Ok((self, round));
            }
            Requests::Mix(count) | Requests::Reads(count) => count,
        };
        let choices = if requests == Requests::Reads(count) { TIMELINES + PROFILES } else { 100 };
        for _ in 0..count {
            let user = self.random.below(self.users.len() as u64) as usize;
            let choice = self.random.below(choices);
            let clock = Instant::now();
            let is_right = match choice {
                ..TIMELINES if self.target.is_for_you => self.read_for_you(user).await?,
                ..TIMELINES => self.read_timeline(user).await?,
                TIMELINES.. if choice < TIMELINES + PROFILES => self.read_profile(user).await?,
                _ => self.publish(user).await?,
            };
            let took = clock.elapsed().as_nanos() as u64;
            let kind =
                if choice < TIMELINES + PROFILES { &mut round.reads } else { &mut round.posts };
            kind.push(took);
            round.wrong += u64::from(!is_right);
        }
        Ok((self, round))
    }

    async fn read_timeline(&mut self, user: usize) -> io::Result<bool> {
        let User { token, followed, timeline, .. } = &mut self.users[user];
        let newest = |other: &u64| self.target.newest[*other as usize].load(Ordering::Acquire);
        let newest = followed.iter().map(newest).max().unwrap_or(0);
        self.request.clear();
        write!(self.request, "GET /api/v1/timeline HTTP/1.1\r\n{HOST}{token}\r\n\r\n")?;
        let answer = exchange(&mut self.stream, &self.request, &mut self.answer).await?;
        if self.target.is_hello {
            return Ok(is_hello(answer));
        }
        let least = followed.len() * self.target.population.posts as usize;
        let first = timeline.first(answer, followed, |ids, page| {
            (ids.len() == PAGE || ids.len() >= least)
                && (page.next_cursor.is_some() || ids.len() <= PAGE)
        });
        Ok(first.is_some_and(|first| first >= newest))
    }

    /// Reads the first page of a new visit of For you: different posts of other users, as many as those that the user
    /// follows have at least. Their order is the service's own.
    async fn read_for_you(&mut self, user: usize) -> io::Result<bool> {
        let User { number, token, followed, .. } = &self.users[user];
        self.request.clear();
        write!(self.request, "GET /api/v1/for-you HTTP/1.1\r\n{HOST}{token}\r\n\r\n")?;
        let answer = exchange(&mut self.stream, &self.request, &mut self.answer).await?;
        let Some(page) = page(answer) else { return Ok(false) };
        let of_others = page.posts.iter().filter_map(Post::read);
        let ids: HashSet<u64> =
            of_others.filter(|(author, _)| author != number).map(|(_, id)| id).collect();
        let due = followed.len() * self.target.population.posts as usize;
        Ok(ids.len() == page.posts.len() && (due.min(PAGE)..=PAGE).contains(&ids.len()))
    }

    async fn read_profile(&mut self, user: usize) -> io::Result<bool> {
        let User { number, token, posts, profile, .. } = &mut self.users[user];
        self.request.clear();
        let path = "/api/v1/users/user_";
        write!(self.request, "GET {path}{number}/posts HTTP/1.1\r\n{HOST}{token}\r\n\r\n")?;
        let answer = exchange(&mut self.stream, &self.request, &mut self.answer).await?;
        if self.target.is_hello {
            return Ok(is_hello(answer));
        }
        let first = profile.first(answer, &[*number], |ids, page| {
            ids.len() as u64 == (*posts).min(PAGE as u64)
                && page.next_cursor.is_some() == (*posts > PAGE as u64)
        });
        let Some(first) = first else { return Ok(false) };
        // Before the first read of a user's posts, none of their ids is known.
        let newest = &self.target.newest[*number as usize];
        let known = newest.load(Ordering::Acquire);
        newest.store(first, Ordering::Release);
        Ok(known == 0 || first == known)
    }

    async fn publish(&mut self, user: usize) -> io::Result<bool> {
        let User { number, token, posts, .. } = &mut self.users[user];
        let text = population::text(*number, *posts);
        let body = format!("{{\"text\":\"{text}\"}}");
        let length = body.len();
        self.request.clear();
        write!(self.request, "POST /api/v1/posts HTTP/1.1\r\n{HOST}{token}\r\n")?;
        write!(self.request, "content-type: application/json\r\ncontent-length: {length}\r\n\r\n")?;
        self.request.extend_from_slice(body.as_bytes());
        let answer = exchange(&mut self.stream, &self.request, &mut self.answer).await?;
        if self.target.is_hello {
            return Ok(is_hello(answer));
        }
        *posts += 1;
        let Ok(post) = serde_json::from_slice::<Post<'_>>(answer.body) else { return Ok(false) };
        let newest = &self.target.newest[*number as usize];
        let is_right = answer.status == 201
            && post.text == text
            && post.check(&[*number]).is_some_and(|id| {
                // Release: a connection that has seen the id asks for a timeline after the acknowledgement.
                newest.swap(id, Ordering::AcqRel) < id
            });
        Ok(is_right)
    }

    /// Reads the ids of all posts of each user; returns them with the user's number, and the number of users who do
    /// not have as many posts as were made.
    pub(super) async fn read_all(mut self) -> io::Result<(Connection, Vec<(u64, Vec<u64>)>, u64)> {
        let (mut all, mut wrong) = (Vec::new(), 0);
        for User { number, token, posts, .. } in &self.users {
            let (mut ids, mut cursor) = (Vec::new(), None::<String>);
            loop {
                let from = cursor.map_or_else(String::new, |cursor| format!("&cursor={cursor}"));
                let path = format!("/api/v1/users/user_{number}/posts?limit={PAGE_MAX}{from}");
                self.request.clear();
                write!(self.request, "GET {path} HTTP/1.1\r\n{HOST}{token}\r\n\r\n")?;
                let answer = exchange(&mut self.stream, &self.request, &mut self.answer).await?;
                let Some(page) = page(answer) else { break };
                ids.extend(page.posts.iter().filter_map(|post| post.check(&[*number])));
                cursor = page.next_cursor.map(str::to_owned);
                if cursor.is_none() {
                    break;
                }
            }
            wrong += u64::from(ids.len() as u64 != *posts);
            all.push((*number, ids));
        }
        Ok((self, all, wrong))
    }

    /// Reads the timeline of each user; returns the number of those that are not the newest of all posts, whose ids
    /// are given by author.
    pub(super) async fn check_timelines(mut self, posts: Arc<[Vec<u64>]>) -> io::Result<u64> {
        let mut wrong = 0;
        for User { token, followed, .. } in &self.users {
            let path = format!("/api/v1/timeline?limit={PAGE_MAX}");
            self.request.clear();
            write!(self.request, "GET {path} HTTP/1.1\r\n{HOST}{token}\r\n\r\n")?;
            let answer = exchange(&mut self.stream, &self.request, &mut self.answer).await?;
            let page = page(answer);
            let found =
                page.map(|page| page.posts.iter().map(|post| post.check(followed)).collect());
            let authors = followed.iter().map(|author| &posts[*author as usize]);
            let mut expected: Vec<Option<u64>> = authors.flatten().copied().map(Some).collect();
            expected.sort_unstable_by(|a, b| b.cmp(a));
            expected.truncate(PAGE_MAX);
            wrong += u64::from(found != Some(expected));
        }
        Ok(wrong)
    }
}

impl Post<'_> {
    /// Returns the id, if the post is of one of some authors, in ascending order, and has a text and a time.
    fn check(&self, authors: &[u64]) -> Option<u64> {
        let (author, id) = self.read()?;
        authors.binary_search(&author).is_ok().then_some(id)
    }

    /// Returns the author and the id, if the post has a text and a time.
    fn read(&self) -> Option<(u64, u64)> {
        let is_right = self.text.starts_with("post ") && self.time > 0;
        Some((population::number(self.author)?, self.id.parse().ok().filter(|_| is_right)?))
    }
}

/// Sends a request, and receives the answer into a buffer.
async fn exchange<'a>(
    stream: &mut TcpStream,
    request: &[u8],
    buffer: &'a mut Vec<u8>,
) -> io::Result<Answer<'a>> {
    let is_complete = |bytes: &[u8]| Ok(answer::parse(bytes)?.map(|_| ()));
    answer::exchange(stream, request, buffer, is_complete).await?;
    answer::parse(buffer)?.ok_or_else(|| malformed("is gone", &[]))
}

fn page(answer: Answer<'_>) -> Option<Page<'_>> {
    serde_json::from_slice(answer.body).ok().filter(|_| answer.status == 200)
}

fn is_hello(answer: Answer<'_>) -> bool {
    answer == Answer { status: 200, body: HELLO.as_bytes() }
}
