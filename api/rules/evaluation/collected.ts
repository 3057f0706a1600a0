/** What a step causes, until it is stored: alarms, publications and starts of tasks. */
import type { Recorder } from '#api/identity/index.ts'
import type { Transaction } from '#core/database/index.ts'
import { queueMessages } from '#queues/index.ts'
import type { NewMessage } from '#queues/index.ts'
import { Episodes } from '../alarms/raising.ts'
import type { Seen } from '../alarms/raising.ts'
import type { Episode } from '../alarms/repository.ts'
import type { CompiledAction, CompiledRule } from '../compile.ts'
import type { Contacts, NewNotification } from '../contacts.ts'
import type { RuleClient, RuleEffect } from '../engine/index.ts'
import { mailsOf, positionOf, publicationOf, requestOf, startOf, textOf, valueOf, variablesOf } from './effects.ts'
import type { Known } from './effects.ts'
import { beginEscalation, escalate, severityOf } from './evaluation.ts'
import type { Caused, Evaluation, SeriesState } from './evaluation.ts'
import { countErrors, countPublications, findTaskKeys, insertPublications } from './repository.ts'
import type { ChannelRow, NewPublication, StepDomain } from './repository.ts'
import { settleTellings } from './telling.ts'
import type { Telling, TellingDeps } from './telling.ts'

/** An alarm, a publication and a start have about as many characters without texts. */
const CHARS_OF_EFFECT = 500
/** Publications of a domain that may wait: rules that cause each other cause up to the eighth power of their number. */
const MAX_PUBLICATIONS = 10_000

const FULL = `${MAX_PUBLICATIONS} messages of rules of the domain wait for their publication: a message was not published`

/** Whether the action is for what happened. */
const isFor = ({ on, afterMs }: Exclude<CompiledAction, { type: 'alarm' }>, { effect }: Caused): boolean =>
  on.has(effect.kind) && (effect.kind !== 'escalate' || effect.afterMs === afterMs)

const textsOf = ({ payload }: NewNotification) => String(payload['body'] ?? payload['text'] ?? '').length

export class Collected {
  readonly #episodes = new Episodes()
  readonly #publications: NewPublication[] = []
  readonly #tellings: Telling[] = []
  /** The states of alarms that may be escalated later. */
  readonly #escalating = new Map<Episode, SeriesState>()
  readonly #starts: { rule: CompiledRule; taskId: string; message: NewMessage }[] = []
  readonly #known: Known
  readonly #domain: StepDomain
  readonly #channels: ReadonlyMap<number, ChannelRow>
  readonly #rules: ReadonlyMap<number, CompiledRule>
  #chars = 0

  constructor(
    {
      domain,
      channels,
      client,
    }: {
      domain: StepDomain
      channels: ReadonlyMap<number, ChannelRow>
      client: (id: string) => RuleClient | undefined
    },
    rules: ReadonlyMap<number, CompiledRule>,
  ) {
    this.#domain = domain
    this.#channels = channels
    this.#rules = rules
    this.#known = {
      channelId: (key) => channels.get(key)?.id ?? '',
      channelName: (key) => channels.get(key)?.name ?? '',
      client,
    }
  }

  /** About how much there is to store. */
  get chars(): number {
    return this.#chars
  }

  take(caused: Caused): void {
    const variables = variablesOf(caused, this.#known)
    const { rule, effect, isLate, entry } = caused
    const notifications: NewNotification[] = []
    const acts: (() => void)[] = []
    const isEscalation = effect.kind === 'escalate'
    const isAlarm = rule.actions.some(({ type }) => type === 'alarm')
    const alarm = isAlarm ? this.#alarmOf(caused, variables) : undefined
    // All but the notifications was done before.
    const episode = alarm === undefined || isLate || isEscalation ? undefined : this.#alarm(effect, alarm)
    if (episode !== undefined && rule.escalations.length > 0) this.#escalating.set(episode, entry)
    for (const [place, action] of rule.actions.entries()) {
      if (action.type === 'alarm' || !isFor(action, caused)) continue
      if (action.type === 'mail') notifications.push(...mailsOf(caused, action, variables, this.#known))
      else if (action.type === 'webhook') notifications.push(requestOf(caused, action, variables, this.#known))
      else if (!isLate) {
        const act = () => this.#act(caused, action, { place, rule, variables })
        if (isEscalation) acts.push(act)
        else act()
      }
    }
    for (const notification of notifications) this.#chars += CHARS_OF_EFFECT + textsOf(notification)
    // Most messages for which a condition holds tell nobody.
    if (effect.kind !== 'repeat' || notifications.length > 0 || entry.silencedUntilMs !== null)
      this.#tellings.push({ caused, alarm, episode, notifications, acts })
  }

  #act(
    caused: Caused,
    action: Extract<CompiledAction, { type: 'publish' | 'start' }>,
    { place, rule, variables }: { place: number; rule: CompiledRule; variables: ReturnType<typeof variablesOf> },
  ): void {
    const known = this.#known
    if (action.type === 'start') {
      this.#starts.push({ rule, taskId: action.taskId, message: startOf(caused, place, known) })
      this.#chars += CHARS_OF_EFFECT
      return
    }
    const of = { domainKey: this.#domain.domainKey, place, variables, known }
    const publication = publicationOf(caused, action, of)
    this.#publications.push(publication)
    this.#chars += CHARS_OF_EFFECT + publication.payload.length
  }

  #alarmOf(caused: Caused, variables: ReturnType<typeof variablesOf>): Seen {
    const { rule, series, effect } = caused
    const channel = this.#channels.get(series.channelKey)
    return {
      ruleId: rule.id,
      ruleName: rule.name,
      clientId: series.publisherId === '' ? null : series.publisherId,
      clientName: variables.client.name,
      channelId: channel?.id ?? null,
      channelName: channel?.name ?? '',
      subtopic: series.subtopic,
      name: series.name,
      unit: variables.unit ?? '',
      severity: severityOf(caused),
      value: valueOf(variables),
      text: effect.kind === 'clear' ? '' : textOf(caused, variables),
      condition: rule.condition.source,
      cause: positionOf(effect.cause),
      atSeconds: effect.atMs / 1000,
    }
  }

  #alarm({ kind }: RuleEffect, seen: Seen): Episode {
    const { size } = this.#episodes
    const episode = this.#episodes[kind](seen)
    if (this.#episodes.size > size) this.#chars += CHARS_OF_EFFECT + seen.text.length
    return episode
  }

  /** Decides who is notified, before states and alarms are stored. Returns what is sent. */
  async settle(
    tx: Transaction,
    record: Recorder,
    deps: Omit<TellingDeps, 'domainKey'>,
  ): Promise<readonly NewNotification[]> {
    if (this.#tellings.length === 0) return []
    return await settleTellings(tx, record, this.#tellings, { ...deps, domainKey: this.#domain.domainKey })
  }

  /** Store the states after it: an alarm without room is not escalated. */
  async store(
    tx: Transaction,
    record: Recorder,
    {
      evaluation,
      maxOpen,
      contacts,
      notifications,
    }: {
      evaluation: Evaluation
      maxOpen: number | undefined
      contacts: Pick<Contacts, 'record'>
      /** The notifications that `settle` returned. */
      notifications: readonly NewNotification[]
    },
  ): Promise<{ published: boolean; started: boolean; notified: boolean }> {
    const { domainKey } = this.#domain
    const refused = this.#episodes.isEmpty ? [] : await this.#storeAlarms(tx, record, maxOpen)
    const { fitting, excess } = await this.#fit(tx)
    await insertPublications(tx, fitting)
    for (const { ruleKey } of fitting) this.#countActed(evaluation, ruleKey)
    const tasks = await findTaskKeys(tx, domainKey, [...new Set(this.#starts.map(({ taskId }) => taskId))])
    const errors = [...new Set(refused.map(({ ruleId }) => ruleId))].map((ruleId) => ({
      ruleId,
      reason: `the domain has as many open alarms as it may (${maxOpen}): an alarm was not raised`,
      count: 1,
    }))
    for (const [ruleId, some] of Map.groupBy(excess, (row) => row.ruleId))
      errors.push({ ruleId, reason: FULL, count: some.length })
    for (const [taskId, starts] of Map.groupBy(this.#starts, (start) => start.taskId)) {
      const taskKey = tasks.get(taskId)
      if (taskKey === undefined)
        for (const [rule, of] of Map.groupBy(starts, (start) => start.rule))
          errors.push({ ruleId: rule.id, reason: `the task ${taskId} was deleted`, count: of.length })
      else {
        await queueMessages(
          tx,
          taskKey,
          starts.map(({ message }) => message),
        )
        for (const { rule } of starts) this.#countActed(evaluation, rule.key)
      }
    }
    const notified = await contacts.record(tx, domainKey, notifications)
    for (const ruleKey of notified.recorded) this.#countActed(evaluation, ruleKey)
    for (const { ruleKey, reason, count } of notified.refused) {
      const rule = this.#rules.get(ruleKey)
      if (rule !== undefined) errors.push({ ruleId: rule.id, reason, count })
    }
    await countErrors(tx, errors)
    return {
      published: fitting.length > 0,
      started: this.#starts.length > 0,
      notified: notified.recorded.length > 0,
    }
  }

  /** The time of an alarm that is raised only now begins now. Returns those that had no room. */
  async #storeAlarms(tx: Transaction, record: Recorder, maxOpen: number | undefined): Promise<readonly Episode[]> {
    const { domainKey } = this.#domain
    const { refused, late } = await this.#episodes.store(tx, record, { domainKey, maxOpen })
    for (const episode of refused) {
      const entry = this.#escalating.get(episode)
      if (entry !== undefined) escalate(entry, null)
    }
    for (const episode of late) {
      const entry = this.#escalating.get(episode)
      if (entry?.silencedUntilMs === null) beginEscalation(entry, Date.now())
    }
    return refused
  }

  /** What there is room for among the publications of the domain that wait. */
  async #fit(tx: Transaction): Promise<{ fitting: NewPublication[]; excess: NewPublication[] }> {
    const all = this.#publications
    if (all.length === 0) return { fitting: [], excess: [] }
    const room = MAX_PUBLICATIONS - (await countPublications(tx, this.#domain.domainKey, MAX_PUBLICATIONS))
    return { fitting: all.slice(0, room), excess: all.slice(room) }
  }

  #countActed(evaluation: Evaluation, ruleKey: number): void {
    const rule = this.#rules.get(ruleKey)
    if (rule !== undefined) evaluation.countsOf(rule).acted++
  }
}
