/**
 * Which rules a record meets. Each rule has one place, under what it asks for that most records do not have, so a record looks at a few
 * maps and at rules that probably meet it. Its cost does not depend on the number of other rules.
 */

export type RuleFilter = {
  /** Ids; undefined for any channel. */
  channels?: readonly string[] | undefined
  /** Elements separated by `.`, with `*` for one element and `>` for the rest, as parseSubtopicFilter writes them; undefined for any. */
  subtopic?: string | undefined
  /** Names of records; undefined for any, and for messages without records. */
  names?: readonly string[] | undefined
  clients?: readonly string[] | undefined
  groups?: readonly string[] | undefined
  tags?: readonly string[] | undefined
}

export type RecordFacts = {
  channel: string
  subtopic: string
  /** Undefined for a message that is not SenML. */
  name: string | undefined
  client: string
  /** The groups of the client and their ancestors, as far as rules count them. */
  groups: readonly string[]
  tags: readonly string[]
}

type Entry<T> = { rule: T; order: number; filter: RuleFilter }

/** The rules of one channel, or of any channel. */
class Places<T> {
  readonly #clients = new Map<string, Entry<T>[]>()
  readonly #names = new Map<string, Entry<T>[]>()
  readonly #subtopics = new SubtopicTree<Entry<T>>()
  readonly #tags = new Map<string, Entry<T>[]>()
  readonly #groups = new Map<string, Entry<T>[]>()
  readonly #rest: Entry<T>[] = []

  add(entry: Entry<T>): void {
    const { clients, names, subtopic, tags, groups } = entry.filter
    if (clients !== undefined) addAll(this.#clients, clients, entry)
    else if (names !== undefined) addAll(this.#names, names, entry)
    else if (subtopic !== undefined) this.#subtopics.add(subtopic, entry)
    else if (tags !== undefined) addAll(this.#tags, tags, entry)
    else if (groups !== undefined) addAll(this.#groups, groups, entry)
    else this.#rest.push(entry)
  }

  collect(facts: RecordFacts, met: Entry<T>[]): void {
    collectMet(this.#clients.get(facts.client), facts, met)
    if (facts.name !== undefined) collectMet(this.#names.get(facts.name), facts, met)
    this.#subtopics.collect(facts.subtopic, (entries) => collectMet(entries, facts, met))
    if (this.#tags.size > 0) for (const tag of facts.tags) collectMet(this.#tags.get(tag), facts, met)
    if (this.#groups.size > 0) for (const group of facts.groups) collectMet(this.#groups.get(group), facts, met)
    collectMet(this.#rest, facts, met)
  }
}

function addAll<T>(places: Map<string, Entry<T>[]>, keys: readonly string[], entry: Entry<T>): void {
  for (const key of new Set(keys)) {
    const entries = places.get(key)
    if (entries === undefined) places.set(key, [entry])
    else entries.push(entry)
  }
}

function collectMet<T>(entries: readonly Entry<T>[] | undefined, facts: RecordFacts, met: Entry<T>[]): void {
  if (entries === undefined) return
  for (const entry of entries) if (meets(entry.filter, facts)) met.push(entry)
}

/** The channel is met, because a rule is looked up by it. */
function meets({ clients, names, subtopic, tags, groups }: RuleFilter, facts: RecordFacts): boolean {
  return (
    (clients === undefined || clients.includes(facts.client)) &&
    (names === undefined || (facts.name !== undefined && names.includes(facts.name))) &&
    (tags === undefined || tags.some((tag) => facts.tags.includes(tag))) &&
    (groups === undefined || groups.some((group) => facts.groups.includes(group))) &&
    (subtopic === undefined || coversSubtopic(subtopic, facts.subtopic))
  )
}

const elementsOf = (subtopic: string) => (subtopic === '' ? [] : subtopic.split('.'))

export function coversSubtopic(filter: string, subtopic: string): boolean {
  if (filter === subtopic || filter === '>') return true
  const given = elementsOf(subtopic)
  const wanted = elementsOf(filter)
  for (const [index, element] of wanted.entries()) {
    if (element === '>') return true
    if (index >= given.length || (element !== '*' && element !== given[index])) return false
  }
  return wanted.length === given.length
}

type Branch<E> = { next: Map<string, Branch<E>>; here: E[]; rest: E[] }
const newBranch = <E>(): Branch<E> => ({ next: new Map(), here: [], rest: [] })

/** Filters of subtopics by their elements. */
class SubtopicTree<E> {
  readonly #root: Branch<E> = newBranch()
  #isEmpty = true

  add(filter: string, entry: E): void {
    this.#isEmpty = false
    let branch = this.#root
    for (const element of elementsOf(filter)) {
      if (element === '>') {
        branch.rest.push(entry)
        return
      }
      let next = branch.next.get(element)
      if (next === undefined) branch.next.set(element, (next = newBranch()))
      branch = next
    }
    branch.here.push(entry)
  }

  collect(subtopic: string, give: (entries: readonly E[]) => void): void {
    if (!this.#isEmpty) this.#collect(this.#root, elementsOf(subtopic), 0, give)
  }

  #collect(branch: Branch<E>, elements: readonly string[], at: number, give: (entries: readonly E[]) => void): void {
    if (branch.rest.length > 0) give(branch.rest)
    const element = elements[at]
    if (element === undefined) {
      give(branch.here)
      return
    }
    const exact = branch.next.get(element)
    if (exact !== undefined) this.#collect(exact, elements, at + 1, give)
    const any = branch.next.get('*')
    if (any !== undefined) this.#collect(any, elements, at + 1, give)
  }
}

const NONE: readonly never[] = []

export class RuleIndex<T> {
  readonly #channels = new Map<string, Places<T>>()
  readonly #anyChannel = new Places<T>()
  #hasAnyChannel = false

  constructor(rules: Iterable<T>, filterOf: (rule: T) => RuleFilter) {
    let order = 0
    for (const rule of rules) {
      const filter = filterOf(rule)
      const entry = { rule, order: order++, filter }
      if (filter.channels === undefined) {
        this.#anyChannel.add(entry)
        this.#hasAnyChannel = true
      }
      for (const channel of new Set(filter.channels)) {
        let places = this.#channels.get(channel)
        if (places === undefined) this.#channels.set(channel, (places = new Places()))
        places.add(entry)
      }
    }
  }

  /** Whether any rule can meet a record of the channel: if not, its messages need not be parsed. */
  watches(channel: string): boolean {
    return this.#hasAnyChannel || this.#channels.has(channel)
  }

  /** The rules that the record meets, in the order that they were given in. */
  match(facts: RecordFacts): readonly T[] {
    const met: Entry<T>[] = []
    this.#channels.get(facts.channel)?.collect(facts, met)
    if (this.#hasAnyChannel) this.#anyChannel.collect(facts, met)
    if (met.length === 0) return NONE
    if (met.length === 1) return [(met[0] as Entry<T>).rule]
    met.sort((left, right) => left.order - right.order)
    // A rule with several tags stands under each of them.
    return met.filter((entry, index) => entry !== met[index - 1]).map(({ rule }) => rule)
  }
}
