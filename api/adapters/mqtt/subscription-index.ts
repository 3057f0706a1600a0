/** Subscriptions and which of them a message matches (section 4.7), found by walking a tree of levels once per topic. */
import type { Session, Subscription } from './session.ts'

/** The subscriptions of one session that a message matches: it is sent once. */
export type Match = { session: Session; subscriptions: readonly Subscription[] }

/** Sessions that share a subscription: one of them is sent each message. */
export type SharedMatch = { members: readonly Subscription[]; next: number }

export type Matches = { own: readonly Match[]; shared: readonly SharedMatch[] }

type Node = {
  children: Map<string, Node>
  subscriptions: Set<Subscription>
}

const newNode = (): Node => ({ children: new Map(), subscriptions: new Set() })

/** Topics whose matches are remembered. */
const MAX_REMEMBERED = 1000
const NO_MATCHES: Matches = { own: [], shared: [] }

/** Everybody who subscribed to topics of one stream. */
export class SubscriptionIndex {
  readonly #root = newNode()
  readonly #separator: string
  #remembered = new Map<string, Matches>()
  #size = 0

  /** `separator` stands between the levels of a subtopic. */
  constructor(separator: string) {
    this.#separator = separator
  }

  get size(): number {
    return this.#size
  }

  add(subscription: Subscription): void {
    let node = this.#root
    for (const level of subscription.levels) {
      let child = node.children.get(level)
      if (child === undefined) node.children.set(level, (child = newNode()))
      node = child
    }
    if (node.subscriptions.has(subscription)) return
    node.subscriptions.add(subscription)
    this.#size++
    this.#remembered.clear()
  }

  delete(subscription: Subscription): void {
    const path: { node: Node; level: string }[] = []
    let node = this.#root
    for (const level of subscription.levels) {
      const child = node.children.get(level)
      if (child === undefined) return
      path.push({ node, level })
      node = child
    }
    if (!node.subscriptions.delete(subscription)) return
    this.#size--
    this.#remembered.clear()
    for (const { node: parent, level } of path.toReversed()) {
      const child = parent.children.get(level)
      if (child === undefined || child.subscriptions.size > 0 || child.children.size > 0) break
      parent.children.delete(level)
    }
  }

  sessions(): Set<Session> {
    const sessions = new Set<Session>()
    const visit = (node: Node) => {
      for (const { session } of node.subscriptions) sessions.add(session)
      for (const child of node.children.values()) visit(child)
    }
    visit(this.#root)
    return sessions
  }

  match(subtopic: string): Matches {
    if (this.#size === 0) return NO_MATCHES
    const known = this.#remembered.get(subtopic)
    if (known !== undefined) return known
    const found: Subscription[] = []
    collect(this.#root, subtopic === '' && this.#separator === '.' ? [] : subtopic.split(this.#separator), 0, found)
    const matches = group(found)
    if (this.#remembered.size >= MAX_REMEMBERED) this.#remembered.clear()
    this.#remembered.set(subtopic, matches)
    return matches
  }
}

function collect(node: Node, levels: readonly string[], at: number, found: Subscription[]): void {
  // [MQTT-4.7.2-1]: wildcards at the beginning do not match what begins with `$`.
  const mayBeWildcard = at > 0 || levels[0]?.startsWith('$') !== true
  // `#` stands for the parent level too (section 4.7.1.2).
  if (mayBeWildcard) for (const subscription of node.children.get('#')?.subscriptions ?? []) found.push(subscription)
  const level = levels[at]
  if (level === undefined) {
    for (const subscription of node.subscriptions) found.push(subscription)
    return
  }
  const exact = node.children.get(level)
  if (exact !== undefined) collect(exact, levels, at + 1, found)
  const any = mayBeWildcard ? node.children.get('+') : undefined
  if (any !== undefined) collect(any, levels, at + 1, found)
}

function group(found: readonly Subscription[]): Matches {
  const own = new Map<Session, Subscription[]>()
  const shared = new Map<string, Subscription[]>()
  for (const subscription of found) {
    if (subscription.group === undefined) append(own, subscription.session, subscription)
    // Groups of one name and different filters are different groups (section 4.8.2).
    else append(shared, `${subscription.group}\n${subscription.levels.join('\n')}`, subscription)
  }
  return {
    own: [...own].map(([session, subscriptions]) => ({ session, subscriptions })),
    shared: [...shared.values()].map((members) => ({ members, next: 0 })),
  }
}

function append<Key>(groups: Map<Key, Subscription[]>, key: Key, subscription: Subscription): void {
  const known = groups.get(key)
  if (known === undefined) groups.set(key, [subscription])
  else known.push(subscription)
}
