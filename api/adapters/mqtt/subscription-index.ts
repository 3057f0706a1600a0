/** Subscriptions in a radix tree of levels, which is searched once per topic (section 4.7). */
import type { Session, Subscription } from './session.ts'

/** The subscriptions of one session that match a message: it is sent once. */
export type Match = { session: Session; subscriptions: readonly Subscription[] }

/** The members of a shared subscription: one of them is sent each message. */
export type SharedMatch = { members: readonly Subscription[]; next: number }

export type Matches = { own: readonly Match[]; shared: readonly SharedMatch[] }

/** A node of a radix tree: a filter with hundreds of levels takes one or two nodes, not one for each level. */
type Node = {
  /** Levels between the parent and this node; empty for the root only. */
  label: readonly string[]
  /** The keys are the first levels of the labels of the children. */
  children: Map<string, Node>
  subscriptions: Set<Subscription>
}

const newNode = (label: readonly string[]): Node => ({ label, children: new Map(), subscriptions: new Set() })

/** The number of topics whose matches are cached. */
const MAX_CACHED_MATCHES = 1000
const NO_MATCHES: Matches = { own: [], shared: [] }

/** The subscriptions to topics of one stream. */
export class SubscriptionIndex {
  readonly #root = newNode([])
  readonly #separator: string
  #cached = new Map<string, Matches>()
  #size = 0

  /** `separator` is between the levels of a subtopic. */
  constructor(separator: string) {
    this.#separator = separator
  }

  get size(): number {
    return this.#size
  }

  add(subscription: Subscription): void {
    const { levels } = subscription
    let node = this.#root
    for (let at = 0; at < levels.length; at += node.label.length) node = childFor(node, levels, at)
    if (node.subscriptions.has(subscription)) return
    node.subscriptions.add(subscription)
    this.#size++
    this.#cached.clear()
  }

  delete(subscription: Subscription): void {
    const { levels } = subscription
    let [parent, node] = [this.#root, this.#root]
    for (let at = 0; at < levels.length; at += node.label.length) {
      const child = node.children.get(levels[at] ?? '')
      if (child === undefined || commonLength(child.label, levels, at) < child.label.length) return
      ;[parent, node] = [node, child]
    }
    if (!node.subscriptions.delete(subscription)) return
    this.#size--
    this.#cached.clear()
    if (node === this.#root || node.subscriptions.size > 0) return
    if (node.children.size === 0) parent.children.delete(node.label[0] ?? '')
    else mergeWithOnlyChild(node)
    if (parent !== this.#root && parent.subscriptions.size === 0) mergeWithOnlyChild(parent)
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
    const known = this.#cached.get(subtopic)
    if (known !== undefined) return known
    const found: Subscription[] = []
    collect(this.#root, subtopic === '' && this.#separator === '.' ? [] : subtopic.split(this.#separator), 0, found)
    const matches = group(found)
    if (this.#cached.size >= MAX_CACHED_MATCHES) this.#cached.clear()
    this.#cached.set(subtopic, matches)
    return matches
  }
}

/** The child of a node towards these levels from `at` on; it is created, or split from a child with a longer label. */
function childFor(node: Node, levels: readonly string[], at: number): Node {
  const first = levels[at] ?? ''
  const child = node.children.get(first)
  if (child === undefined) {
    const leaf = newNode(levels.slice(at))
    node.children.set(first, leaf)
    return leaf
  }
  const common = commonLength(child.label, levels, at)
  if (common === child.label.length) return child
  const fork = newNode(child.label.slice(0, common))
  child.label = child.label.slice(common)
  fork.children.set(child.label[0] ?? '', child)
  node.children.set(first, fork)
  return fork
}

/** The length of the common prefix of a label and the path from `at` on. */
function commonLength(label: readonly string[], levels: readonly string[], at: number): number {
  let length = 0
  while (length < label.length && label[length] === levels[at + length]) length++
  return length
}

/** Merges a node without subscriptions and with one child into that child. */
function mergeWithOnlyChild(node: Node): void {
  const [child, ...others] = node.children.values()
  if (child === undefined || others.length > 0) return
  node.label = [...node.label, ...child.label]
  node.children = child.children
  node.subscriptions = child.subscriptions
}

function collect(node: Node, levels: readonly string[], at: number, found: Subscription[]): void {
  // [MQTT-4.7.2-1]: leading wildcards do not match topics that begin with `$`.
  const mayBeWildcard = at > 0 || levels[0]?.startsWith('$') !== true
  if (at === levels.length) for (const subscription of node.subscriptions) found.push(subscription)
  const level = levels[at]
  const exact = level === undefined ? undefined : node.children.get(level)
  if (exact !== undefined) follow(exact, levels, at, found)
  if (!mayBeWildcard) return
  for (const wildcard of WILDCARDS) {
    const child = node.children.get(wildcard)
    if (child !== undefined) follow(child, levels, at, found)
  }
}

const WILDCARDS = ['#', '+'] as const

/** Searches below a child whose label matches the levels from `at` on. */
function follow(child: Node, levels: readonly string[], at: number, found: Subscription[]): void {
  for (const [index, part] of child.label.entries()) {
    // The last level of a filter; matches the parent level too (section 4.7.1.2).
    if (part === '#') {
      for (const subscription of child.subscriptions) found.push(subscription)
      return
    }
    const level = levels[at + index]
    if (level === undefined || (part !== '+' && part !== level)) return
  }
  collect(child, levels, at + child.label.length, found)
}

function group(found: readonly Subscription[]): Matches {
  const own = new Map<Session, Subscription[]>()
  const shared = new Map<string, Subscription[]>()
  for (const subscription of found) {
    if (subscription.group === undefined) append(own, subscription.session, subscription)
    // Groups with the same name and different filters are different groups (section 4.8.2).
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
