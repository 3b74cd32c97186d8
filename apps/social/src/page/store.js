// What the user follows and belongs to, shared by the views: follows, memberships, likes.

import { api, current } from "./api.js";

let following = new Set();
let rooms = new Set();
const listeners = new Set();

/** Calls `listener` after each change of follows or memberships. Returns a function that ends this. */
export function onChange(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function changed(what) {
  for (const listener of [...listeners]) listener(what);
}

export const follows = (name) => following.has(name);
export const followed = () => [...following].sort();
export const isMember = (room) => rooms.has(room);
export const memberships = () => [...rooms].sort();

/** Reads follows and memberships. */
export async function load() {
  const [people, joined] = await Promise.all([api("GET", "/following"), api("GET", "/memberships")]);
  following = new Set(people.following);
  rooms = new Set(joined.rooms);
  changed("all");
}

/** Forgets everything, for the next user. */
export function clear() {
  following = new Set();
  rooms = new Set();
}

/** Follows a user, or ends it. */
export async function follow(name, wanted) {
  await api(wanted ? "PUT" : "DELETE", `/following/${name}`);
  if (wanted) following.add(name);
  else following.delete(name);
  changed("following");
}

/** Joins a room, or leaves it. */
export async function join(room, wanted) {
  await api(wanted ? "PUT" : "DELETE", `/memberships/${room}`);
  setMember(room, wanted);
}

/** Notes a membership that the server has told of. */
export function setMember(room, isOne) {
  if (rooms.has(room) === isOne) return;
  if (isOne) rooms.add(room);
  else rooms.delete(room);
  changed("rooms");
}

// The API gives the number of a post's likes, and not whether the reader is among them, so this browser remembers the
// likes given here. A like given elsewhere shows as not given; to give it again changes nothing.
const LIKES_MAX = 2000;
const likesKey = () => `throng.likes.${current()?.name}`;

function likes() {
  try {
    return JSON.parse(localStorage.getItem(likesKey())) ?? [];
  } catch {
    return [];
  }
}

export const hasLiked = (id) => likes().includes(id);

/** Likes a post, or ends it. */
export async function like(post, wanted) {
  // Before the answer, so that an element that is made meanwhile agrees.
  remember(post, wanted);
  try {
    await api(wanted ? "PUT" : "DELETE", `/users/${post.author}/posts/${post.id}/like`);
  } catch (error) {
    remember(post, !wanted);
    throw error;
  }
}

function remember(post, wanted) {
  const others = likes().filter((id) => id !== post.id);
  const kept = wanted ? [...others, post.id].slice(-LIKES_MAX) : others;
  try { localStorage.setItem(likesKey(), JSON.stringify(kept)); } catch { /* not kept, then */ }
}
