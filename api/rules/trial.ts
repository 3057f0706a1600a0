/**
 * Tries a rule that is not stored: evaluates it over messages that arrived, with states of its own, and says what it would have done. The position at
 * which it stopped is where the rule can begin, so that no message is evaluated twice or missed between the trial and the rule.
 */
import { formatPlace, placeAt } from '#api/consumers/index.ts'
import type { Place } from '#api/consumers/index.ts'
import type { AccessPolicy, UserPrincipal } from '#api/identity/index.ts'
import { placeOf } from '#api/messages/index.ts'
import type { LiveMessage } from '#api/messages/index.ts'
import type { Database } from '#core/database/index.ts'
import { refusedField } from '#core/errors/index.ts'
import { LOG_START } from '#core/changelog/index.ts'
import { newId } from '#core/ids.ts'
import { Slots } from '#core/slots.ts'
import { monotonicMs, parseInstant } from '#core/time.ts'
import { createTurns } from '#core/turns.ts'
import { compileDefinition } from './compile.ts'
import type { CompiledRule } from './compile.ts'
import { requireContacts } from './contacts.ts'
import type { Contacts } from './contacts.ts'
import { RuleIndex } from './engine/index.ts'
import type { RuleClient, RuleEffect } from './engine/index.ts'
import { textOf, valueOf, variablesOf } from './evaluation/effects.ts'
import { Evaluation } from './evaluation/evaluation.ts'
import type { Caused } from './evaluation/evaluation.ts'
import { clientsOf, meetingsOf, readMessages } from './evaluation/meetings.ts'
import type { Meeting } from './evaluation/meetings.ts'
import { listChannels } from './evaluation/repository.ts'
import type { ChannelRow } from './evaluation/repository.ts'
import { MAX_MESSAGE_MS, Spending } from './evaluation/spending.ts'
import { MAX_OF_DOMAIN } from './evaluation/window-budget.ts'
import { DomainWindows } from './evaluation/windows.ts'
import { fieldsOf } from './fields.ts'
import { requireRights } from './rights.ts'
import type { RightsDeps } from './rights.ts'
import { TriedSilence } from './silence-trial.ts'
import type { RuleTrial } from './schema.ts'

/** Records of one trial. */
export const MAX_TRIED = 100_000
/** What it would have done is counted beyond these. */
export const MAX_EVENTS = 1_000
export const MAX_TRIED_SERIES = 100
const MAX_REASONS = 10
const DEFAULT_RANGE_SECONDS = 3_600
/** A trial ends after this time with what it found. */
const MAX_TRIAL_MS = 10_000
/** Trials at a time in a process, and of one domain; others wait. */
const MAX_TRIALS = { max: 4, share: 2, waitMs: 20_000, maxWaiting: 20 } as const

export type TrialEvent = {
  atMs: number
  kind: RuleEffect['kind']
  clientId: string
  clientName: string
  channelId: string
  channelName: string
  subtopic: string
  name: string
  value: unknown
  text: string
  cause: string
}

export type TrialSeries = Pick<
  TrialEvent,
  'clientId' | 'clientName' | 'channelId' | 'channelName' | 'subtopic' | 'name'
> & { raised: number; repeated: number; cleared: number }

export type TrialResult = {
  fromSeconds: number
  seen: number
  matched: number
  unmatchable: number
  raised: number
  cleared: number
  series: TrialSeries[]
  reasons: { reason: string; count: number }[]
  events: TrialEvent[]
  /** The position of the next message. */
  next: string
  /** Everything up to the end of the range was read. */
  isComplete: boolean
}

const NO_HISTORY =
  'must be messages or silence: what states were is not kept, so a rule about state cannot be tried over a time that has passed'

const NO_TIMES =
  'must be messages or silence: a schedule acts at times to come. To try its condition, try a rule about the messages of the same series'
const NO_TRIAL =
  'must be absent: a function can have effects of its own, so a trial does not call it. Try the source and the shape with a `condition`'

type TrialDeps = RightsDeps & { database: Database; access: AccessPolicy; contacts: Contacts }

export class Trials {
  readonly #deps: TrialDeps
  readonly #slots = new Slots({ what: 'trials of rules', ...MAX_TRIALS })

  constructor(deps: TrialDeps) {
    this.#deps = deps
  }

  /** Throws `malformed` and `forbidden` as the creation of the rule does. */
  async try(caller: UserPrincipal, domainId: string, input: RuleTrial): Promise<TrialResult> {
    const domain = await this.#deps.access.enter(caller, domainId)
    domain.require('rule_read')
    const { definition } = fieldsOf(input)
    if (definition.source.type === 'state') throw refusedField('/source/type', NO_HISTORY)
    if (definition.source.type === 'schedule') throw refusedField('/source/type', NO_TIMES)
    if (definition.condition_task !== undefined) throw refusedField('/condition_task', NO_TRIAL)
    const compiled = compileDefinition(definition)
    requireContacts(this.#deps.contacts, definition)
    await requireRights(this.#deps, caller, domain.domainId, compiled)
    const range = rangeOf(input)
    const place = { ...LOG_START, message: 0 }
    const rule = { ...compiled, key: 0, id: newId(), name: input.name ?? '', userKey: caller.key, place, definition }
    const release = await this.#slots.take(domain.domainKey)
    try {
      return await this.#run(domain.domainKey, rule, range)
    } finally {
      release()
    }
  }

  async #run(domainKey: number, rule: CompiledRule, range: Range): Promise<TrialResult> {
    const { database } = this.#deps
    const rows = await listChannels(database.db, domainKey, rule.filter.channels)
    const channels = new Map(rows.map((row) => [row.key, row]))
    const found = new Found(channels)
    const index = new RuleIndex([rule], ({ filter }) => filter)
    const evaluation = new Evaluation(
      (caused) => found.take(caused),
      (reason) => found.fail(reason),
    )
    const windows = DomainWindows.of([rule])
    const fromMs = range.fromSeconds * 1000
    const silence = await TriedSilence.of(database, rule, { domainKey, evaluation, fromMs })
    const endMs = monotonicMs() + MAX_TRIAL_MS
    let place: Place = await placeAt(database.db, range.fromSeconds)
    let isEnd = false
    let seen = 0
    let isSlow = false
    while (!isEnd && !isSlow && seen < MAX_TRIED && monotonicMs() < endMs) {
      const { read, met, loaded } = await database.transaction(async (tx) => {
        const read = await readMessages(tx, { place, channels, index, until: undefined, toSeconds: range.toSeconds })
        const messages = read.messages.filter(({ receivedAtSeconds }) => receivedAtSeconds >= range.fromSeconds)
        const clients = await clientsOf(tx, domainKey, [rule], { messages, due: [] })
        const met = await meetingsOf(messages, index, clients)
        const loaded = await windows?.load(tx, met.meetings, place)
        return { read, met, loaded }
      })
      // No transaction waits for the evaluation.
      const tried = await tryAll(rule, {
        evaluation,
        meetings: met.meetings,
        windows,
        endMs,
        until: loaded?.left,
        silence,
      })
      await silence?.evaluate(database, domainKey, found.clients)
      ;({ isSlow } = tried)
      if (isSlow) found.fail(`the rule takes more than ${MAX_MESSAGE_MS / 1000} s for one message: it would be paused`)
      if (loaded?.isTooMuch === true || (windows?.size ?? 0) > MAX_OF_DOMAIN) {
        found.fail('the windows keep more values than there is memory for: the rule would be paused')
        isSlow = true
      }
      const stoppedAt = tried.stoppedAt ?? met.left
      if (stoppedAt === undefined) ({ place, isEnd } = read)
      else place = placeBefore(stoppedAt)
      ;({ seen } = evaluation.countsOf(rule))
    }
    const nowMs = Math.min(Date.now(), range.toSeconds * 1000)
    if (isEnd) {
      silence?.pass(nowMs)
      await silence?.evaluate(database, domainKey, found.clients)
      for (const entry of evaluation.states) evaluation.pass(entry, nowMs)
    }
    const { matched, unmatchable, raised } = evaluation.countsOf(rule)
    const { fromSeconds } = range
    return {
      fromSeconds,
      seen,
      matched,
      unmatchable,
      raised,
      ...found.result(),
      next: formatPlace(place),
      isComplete: isEnd,
    }
  }
}

const placeBefore = (message: LiveMessage): Place => {
  const { xid, seq, message: number } = placeOf(message)
  return { xid, seq, message: number }
}

/** Evaluates the rule in turns of the event loop, until the time is over or a message takes too long. Returns the next message, if any is left. */
async function tryAll(
  rule: CompiledRule,
  {
    evaluation,
    meetings,
    windows,
    endMs,
    until,
    silence,
  }: {
    evaluation: Evaluation
    meetings: readonly Meeting[]
    windows: DomainWindows | undefined
    endMs: number
    until: LiveMessage | undefined
    silence: TriedSilence | undefined
  },
): Promise<{ stoppedAt: LiveMessage | undefined; isSlow: boolean }> {
  const turns = createTurns()
  const spending = new Spending<CompiledRule>()
  let message: LiveMessage | undefined
  let isSlow = false
  for (const { sample, rules } of meetings) {
    if (sample.message !== message) {
      const isOver = isSlow || sample.message === until || (message !== undefined && monotonicMs() > endMs)
      if (isOver) return { stoppedAt: sample.message, isSlow }
      ;({ message } = sample)
      spending.begin()
    }
    windows?.add(sample)
    if (isSlow || rules.length === 0) continue
    if (turns.isOver) await turns.next()
    if (silence !== undefined) {
      silence.meet(sample)
      continue
    }
    const evaluatedMs = performance.now()
    evaluation.meet(rule, sample, windows?.readerOf(rule, sample))
    isSlow = spending.add(rule, { ms: performance.now() - evaluatedMs, chars: 0 }) !== undefined
  }
  return { stoppedAt: undefined, isSlow }
}

type Range = { fromSeconds: number; toSeconds: number }

function rangeOf({ from, to }: RuleTrial): Range {
  const secondsOf = (text: string, path: string) => Date.parse(parseInstant(text, path)) / 1000
  const toSeconds = to === undefined || to === '' ? Infinity : secondsOf(to, '/to')
  const fromSeconds =
    from === undefined || from === ''
      ? Math.min(Date.now() / 1000, toSeconds) - DEFAULT_RANGE_SECONDS
      : secondsOf(from, '/from')
  if (fromSeconds >= toSeconds) throw refusedField('/to', 'must be after `from`')
  return { fromSeconds, toSeconds }
}

/** What a rule would have done. */
class Found {
  /** Clients that fell silent. */
  readonly clients = new Map<string, RuleClient>()
  readonly #channels: ReadonlyMap<number, ChannelRow>
  readonly #events: TrialEvent[] = []
  readonly #series = new Map<string, TrialSeries>()
  readonly #reasons = new Map<string, number>()
  #cleared = 0

  constructor(channels: ReadonlyMap<number, ChannelRow>) {
    this.#channels = channels
  }

  take(caused: Caused): void {
    const { series, effect } = caused
    if (effect.kind === 'escalate') return
    const channelName = (key: number) => this.#channels.get(key)?.name ?? ''
    const known = {
      channelId: (key: number) => this.#channels.get(key)?.id ?? '',
      channelName,
      client: (id: string) => this.clients.get(id),
    }
    const variables = variablesOf(caused, known)
    const of = {
      clientId: series.publisherId,
      clientName: variables.client.name,
      channelId: known.channelId(series.channelKey),
      channelName: channelName(series.channelKey),
      subtopic: series.subtopic,
      name: series.name,
    }
    this.#count(of, effect.kind)
    if (effect.kind === 'repeat' || this.#events.length >= MAX_EVENTS) return
    this.#events.push({
      ...of,
      atMs: effect.atMs,
      kind: effect.kind,
      value: valueOf(variables),
      text: effect.kind === 'clear' ? '' : textOf(caused, variables),
      cause: effect.cause,
    })
  }

  fail(reason: string): void {
    if (this.#reasons.size < MAX_REASONS || this.#reasons.has(reason))
      this.#reasons.set(reason, (this.#reasons.get(reason) ?? 0) + 1)
  }

  result(): Pick<TrialResult, 'events' | 'series' | 'reasons' | 'cleared'> {
    return {
      cleared: this.#cleared,
      series: [...this.#series.values()],
      reasons: [...this.#reasons].map(([reason, count]) => ({ reason, count })),
      events: this.#events,
    }
  }

  #count(of: Omit<TrialSeries, 'raised' | 'repeated' | 'cleared'>, kind: RuleEffect['kind']): void {
    if (kind === 'clear') this.#cleared++
    const key = JSON.stringify([of.clientId, of.channelId, of.subtopic, of.name])
    let counts = this.#series.get(key)
    if (counts === undefined) {
      if (this.#series.size >= MAX_TRIED_SERIES) return
      this.#series.set(key, (counts = { ...of, raised: 0, repeated: 0, cleared: 0 }))
    }
    if (kind === 'raise') counts.raised++
    else if (kind === 'repeat') counts.repeated++
    else counts.cleared++
    if (of.clientName !== '') counts.clientName = of.clientName
  }
}
