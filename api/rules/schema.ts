/** Wire shapes of rules. */
import { Type } from 'typebox'
import type { Static } from 'typebox'
import { EnabledStatus, Id, Name, RequiredName, StatusFilter, Timestamp } from '#api/identity/index.ts'
import { formatPlace } from '#api/consumers/index.ts'
import { SECRET, documented } from '#http/index.ts'
import { pageFields, pageQuery } from '#core/page.ts'
import { DURATION_PATTERN, formatTime } from '#core/time.ts'
import { Severity } from './alarms/schema.ts'
import type { RuleContact, RuleLetter } from './contacts.ts'
import type { RuleRecord } from './repository.ts'
import type { TrialResult, TrialSeries } from './trial.ts'

/** Bytes of an expression; the engine has further bounds. */
const MAX_EXPRESSION_CHARS = 4_096
const MAX_TEMPLATE_CHARS = 4_096
const MAX_DURATION_CHARS = 32
const MAX_DESCRIPTION_CHARS = 1_024
const MAX_SUBTOPIC_CHARS = 1_024
const MAX_NAME_CHARS = 256
const MAX_TAG_CHARS = 255
const MAX_LISTED = 100
const MAX_CLIENTS = 1_000
const MAX_ACTIONS = 10
const MAX_ADDRESSES = 10
const MAX_ADDRESS_CHARS = 320
const MAX_URL_CHARS = 2_048
const MAX_CRON_CHARS = 256
const MAX_ZONE_CHARS = 64

const duration = (description: string) =>
  Type.String({ maxLength: MAX_DURATION_CHARS, description, ...documented({ pattern: DURATION_PATTERN }) })

const ids = (what: string, maxItems = MAX_LISTED) =>
  Type.Optional(Type.Array(Id, { minItems: 1, maxItems, uniqueItems: true, description: what }))

export const SOURCE_TYPES = ['messages', 'silence', 'state', 'schedule'] as const

/** One object and not one for each type, so that a refused field is named. */
export const RuleSource = Type.Object(
  {
    type: Type.Enum([...SOURCE_TYPES], {
      description:
        '`messages`: stored messages. `silence`: no message of a client that matches; the enabled clients are watched that `clients`, `groups` and `tags` name, and that may publish to one of the channels. `state`: the document of such a client changed, or it went online or offline. `schedule`: a scheduled time has come; with `names` it looks at each series that matches',
    }),
    channels: ids('Ids of channels of the domain; absent: all channels'),
    subtopic: Type.Optional(
      Type.String({
        maxLength: MAX_SUBTOPIC_CHARS,
        description: 'Subtopic with the wildcards + (one element) and # (all that follow); absent: all',
      }),
    ),
    names: Type.Optional(
      Type.Array(Type.String({ minLength: 1, maxLength: MAX_NAME_CHARS }), {
        minItems: 1,
        maxItems: MAX_LISTED,
        uniqueItems: true,
        description: 'Names of SenML records; absent: every record, and JSON objects',
      }),
    ),
    clients: ids('Only messages of these clients', MAX_CLIENTS),
    groups: ids('Only messages of clients in these groups, and in the groups below them'),
    tags: Type.Optional(
      Type.Array(Type.String({ minLength: 1, maxLength: MAX_TAG_CHARS }), {
        minItems: 1,
        maxItems: MAX_LISTED,
        uniqueItems: true,
        description: 'Only messages of clients with one of these tags',
      }),
    ),
    after: Type.Optional(
      duration(
        'Of silence, required: a client is silent when none of its messages has matched for this time, 5s to 720h',
      ),
    ),
    share: Type.Optional(
      Type.Number({
        minimum: 0,
        maximum: 1,
        description:
          'Of silence: when more than this part of the clients, and at least 5, fall silent within a minute, the rule raises once for all of them; defaults to 0.5. 1: it never does',
      }),
    ),
    document: Type.Optional(
      Type.String({
        maxLength: 64,
        description: 'Of state: name of the document of clients; absent or empty: the one without a name',
      }),
    ),
    schedule: Type.Optional(
      Type.String({
        maxLength: MAX_CRON_CHARS,
        description: 'Of schedule, required: a cron expression of five or six fields, such as `0 6 * * *`',
      }),
    ),
    timezone: Type.Optional(
      Type.String({ maxLength: MAX_ZONE_CHARS, description: 'Of schedule: the time zone; defaults to UTC' }),
    ),
    catch_up: Type.Optional(
      Type.Enum(['none', 'once'], {
        description:
          'Of schedule: whether the times that were missed by more than 60 s are evaluated `once`, with the newest of them, or not; defaults to none',
      }),
    ),
  },
  {
    description: 'What a rule is about. What is given must match: channel, subtopic, name and client',
    ...documented({}, 'RuleSource'),
  },
)
export type RuleSource = Static<typeof RuleSource>

/** The moments of an action. */
export const MOMENTS = ['raise', 'repeat', 'clear', 'escalate'] as const
export type Moment = (typeof MOMENTS)[number]

const on = Type.Optional(
  Type.Array(Type.Enum([...MOMENTS]), {
    minItems: 1,
    maxItems: MOMENTS.length,
    uniqueItems: true,
    description:
      '`raise`: the condition begins to hold (after `for`). `repeat`: a further message for which it holds. `clear`: it ended. `escalate`: nobody has acknowledged the alarm of the rule for `after`. Defaults to raise',
  }),
)

const after = Type.Optional(
  duration('With `escalate`, which requires it: how long the alarm is open and not acknowledged, from 1m to 168h'),
)

const template = (description: string) => Type.Optional(Type.String({ maxLength: MAX_TEMPLATE_CHARS, description }))

const AlarmAction = Type.Object(
  {
    type: Type.Literal('alarm'),
    text: template('What the alarm says: text with expressions in `{{ }}`; defaults to the name of the rule'),
  },
  { description: 'Raises an alarm, adds to it while the condition holds, and clears it' },
)
const PublishAction = Type.Object(
  {
    type: Type.Literal('publish'),
    channel: Id,
    subtopic: Type.Optional(Type.String({ maxLength: MAX_SUBTOPIC_CHARS })),
    payload: template(
      'Text with expressions in `{{ }}`; defaults to a JSON object with the moment, the rule, the severity, and the message',
    ),
    content_type: Type.Optional(
      Type.String({
        maxLength: 128,
        description: 'Content type of `payload`; defaults to application/json',
      }),
    ),
    on,
    after,
  },
  { description: 'Publishes a message, with the rights of who last changed the rule' },
)
const StartAction = Type.Object(
  { type: Type.Literal('start'), task: Id, on, after },
  { description: 'Starts a task, which gets the record as a trigger gives it' },
)
const MailAction = Type.Object(
  {
    type: Type.Literal('mail'),
    to: Type.Array(Type.String({ minLength: 3, maxLength: MAX_ADDRESS_CHARS }), {
      minItems: 1,
      maxItems: MAX_ADDRESSES,
      uniqueItems: true,
      description:
        'Email addresses. One that is neither the verified address of a member of the domain nor confirmed first gets a link, and mails once it is opened',
    }),
    subject: template(
      'Text with expressions in `{{ }}`; defaults to the severity, the moment and the text of the alarm',
    ),
    text: template('Text with expressions in `{{ }}`; defaults to a description of what happened'),
    on,
    after,
  },
  { description: 'Sends mails' },
)
const WebhookAction = Type.Object(
  {
    type: Type.Literal('webhook'),
    url: Type.String({
      minLength: 1,
      maxLength: MAX_URL_CHARS,
      description: 'Public https URL, as of a subscription',
    }),
    payload: template(
      'JSON with expressions in `{{ }}` in its texts, such as `{"text": "{{ client.name }} is at {{ value }}"}` for Slack and Teams; defaults to the object that a publication has, with the `id` of the delivery',
    ),
    on,
    after,
  },
  { description: 'Sends a signed POST request with JSON' },
)
export const RuleAction = Type.Union(
  [AlarmAction, PublishAction, StartAction, MailAction, WebhookAction],
  documented({}, 'RuleAction'),
)
export type RuleAction = Static<typeof RuleAction>

export const WINDOW_TIMES = ['arrival', 'message'] as const

const shape = {
  for: Type.Optional(duration('How long the condition must hold before the rule raises; defaults to 0s, at most 24h')),
  clear_when: Type.Optional(
    Type.String({
      maxLength: MAX_EXPRESSION_CHARS,
      description: 'Expression that ends it; absent or empty: when the condition no longer holds',
    }),
  ),
  clear_for: Type.Optional(duration('How long that must hold before the rule clears; defaults to 0s, at most 24h')),
  cooldown: Type.Optional(
    duration('After the rule has cleared, it does not raise again for this series during this time; defaults to 0s'),
  ),
  severity: Type.Optional(Severity),
  window_time: Type.Optional(
    Type.Enum([...WINDOW_TIMES], {
      description: 'Whether windows are over the `arrival` of messages (the default) or the time in the `message`',
    }),
  ),
  actions: Type.Optional(
    Type.Array(RuleAction, { maxItems: MAX_ACTIONS, description: 'What it does; absent: one alarm' }),
  ),
}

const condition = Type.Optional(
  Type.String({
    maxLength: MAX_EXPRESSION_CHARS,
    description:
      'Expression (CEL) that is true or false, such as `value > 30.0`, or of state `!online || has(delta.firmware)`. Silence has none, a schedule may have one with `names`; the others require one, or a `condition_task`',
  }),
)

const About = { description: Type.Optional(Type.String({ maxLength: MAX_DESCRIPTION_CHARS })) }

const Begin = Type.Optional(
  Type.String({
    maxLength: 64,
    description:
      'Position of the first message that it evaluates, such as `next` of a try; absent: messages from now on. 410 for one that is no longer kept',
  }),
)

const conditionTask = Type.Optional(
  Type.String({
    maxLength: 36,
    description:
      'Id of a task whose function decides instead of `condition`: it gets up to about 100 messages, each with one SenML record, and returns a list with one item for each: true, false, or the severity of the alarm. Absent or empty: none',
  }),
)

export const NewRule = Type.Object(
  {
    name: RequiredName,
    ...About,
    status: Type.Optional(EnabledStatus),
    source: RuleSource,
    condition,
    condition_task: conditionTask,
    ...shape,
    from: Begin,
  },
  { $id: 'RuleCreate' },
)
export type NewRule = Static<typeof NewRule>

export const RuleUpdate = Type.Object(
  {
    name: Type.Optional(RequiredName),
    ...About,
    source: Type.Optional(RuleSource),
    condition,
    condition_task: conditionTask,
    ...shape,
  },
  {
    $id: 'RuleUpdate',
    description: 'Absent fields are unchanged. From then on it acts with the rights of the caller',
  },
)
export type RuleUpdate = Static<typeof RuleUpdate>

export const EnableRule = Type.Object({ from: Begin }, { $id: 'RuleEnable' })
export type EnableRule = Static<typeof EnableRule>

const Instant = (description: string) =>
  Type.Optional(
    Type.String({ maxLength: 64, description: `${description} (RFC 3339)`, ...documented({ format: 'date-time' }) }),
  )

export const RuleTrial = Type.Object(
  {
    name: Type.Optional(RequiredName),
    source: RuleSource,
    condition,
    condition_task: conditionTask,
    ...shape,
    from: Instant('Messages that arrived at this time or later; defaults to an hour before `to`'),
    to: Instant('Messages that arrived before this time; defaults to now'),
  },
  { $id: 'RuleTry', description: 'A rule that is not stored, and the range of messages' },
)
export type RuleTrial = Static<typeof RuleTrial>

const triedSeries = {
  client_id: Type.String({ description: 'Empty: a user or a task sent the messages, or many clients are silent' }),
  client_name: Type.String(),
  channel_id: Type.String({ description: 'Empty: no message caused it' }),
  channel_name: Type.String(),
  subtopic: Type.String(),
  name: Type.String(),
}

export const RuleTrialView = Type.Object(
  {
    from: Type.String({ format: 'date-time' }),
    seen: Type.Integer({ description: 'Records and JSON objects that it was evaluated for, at most some 100,000' }),
    matched: Type.Integer({ description: 'Those for which the condition held, or how often a client was silent' }),
    unmatchable: Type.Integer({ description: 'Those for which the condition has no result' }),
    raised: Type.Integer({ description: 'How often it would have raised' }),
    cleared: Type.Integer(),
    is_complete: Type.Boolean({ description: 'False: there are more messages in the range than one trial reads' }),
    next: Type.String({
      description:
        'Position of the next message: with it as `from`, a rule evaluates exactly the messages that follow those of the trial',
    }),
    series: Type.Array(
      Type.Object({ ...triedSeries, raised: Type.Integer(), repeated: Type.Integer(), cleared: Type.Integer() }),
      { description: 'What it would have done for each client and series, at most 100' },
    ),
    reasons: Type.Array(Type.Object({ reason: Type.String(), count: Type.Integer() }), {
      description: 'Why the condition has no result',
    }),
    events: Type.Array(
      Type.Object({
        ...triedSeries,
        at: Type.String({ format: 'date-time' }),
        moment: Type.Enum(['raise', 'clear']),
        value: Type.Unknown(),
        text: Type.String(),
        cause: Type.String({ description: 'Position of the message; empty: no message caused it' }),
      }),
      { description: 'When it would have raised and cleared, at most 1,000' },
    ),
  },
  { $id: 'RuleTrial', description: 'What a rule would have done' },
)

export type RuleDefinition = Pick<
  NewRule,
  'source' | 'for' | 'clear_when' | 'clear_for' | 'cooldown' | 'severity' | 'window_time' | 'actions'
> & {
  /** Empty: none. */
  condition: string
  /** Id of the task that decides instead. */
  condition_task?: string
}

const NAMED = ['channel', 'client', 'group', 'task'] as const

export const RuleView = Type.Object(
  {
    id: Id,
    domain_id: Id,
    name: Type.String(),
    description: Type.String(),
    status: EnabledStatus,
    source: RuleSource,
    condition: Type.String({ description: 'Empty: none' }),
    condition_task: Type.Optional(
      Type.String({ description: 'Id of the task whose function decides instead; absent: none' }),
    ),
    for: Type.String(),
    clear_when: Type.String(),
    clear_for: Type.String(),
    cooldown: Type.String(),
    severity: Severity,
    window_time: Type.Enum([...WINDOW_TIMES]),
    actions: Type.Array(RuleAction),
    named: Type.Array(Type.Object({ type: Type.Enum([...NAMED]), id: Id, name: Type.String() }), {
      description: 'Names of what the rule names by id; deleted entities are absent',
    }),
    acts_as: Type.Optional(
      Type.String({ description: 'Id of the user with whose rights it reads and acts; absent: the user was deleted' }),
    ),
    position: Type.String({ description: 'Of the next message that it evaluates' }),
    behind_since: Type.Optional(
      Type.String({
        format: 'date-time',
        description: 'Arrival of the next message for rules of the domain, if one waits',
      }),
    ),
    paused: Type.Optional(
      Type.Object(
        { at: Timestamp, reason: Type.String() },
        {
          description:
            'It waits at its position. It goes on by itself when a lost right is back, or when a definition that could not be evaluated can be; a change or `enable` ends any pause',
        },
      ),
    ),
    last_error: Type.Optional(
      Type.Object(
        { at: Timestamp, reason: Type.String(), count: Type.Integer() },
        {
          description:
            'What last failed; absent: nothing did since the rule was changed. A contact that accepts a delivery again has no error',
        },
      ),
    ),
    seen: Type.Integer({ description: 'Records and JSON objects that it was evaluated for' }),
    matched: Type.Integer({ description: 'Those for which the condition held, or how often a client was silent' }),
    unmatchable: Type.Integer({
      description: 'Those for which the condition has no result, such as a text where it compares numbers',
    }),
    raised: Type.Integer({ description: 'How often it raised' }),
    acted: Type.Integer({ description: 'Publications, starts, mails and webhook requests that it recorded' }),
    open_alarms: Type.Integer(),
    next_tick_at: Type.Optional(
      Type.String({
        format: 'date-time',
        description: 'Of an enabled schedule: the time that it is evaluated for next',
      }),
    ),
    missed_ticks: Type.Optional(
      Type.Integer({ description: 'Of a schedule: times for which it was not evaluated, or that `catch_up` joined' }),
    ),
    last_match_at: Type.Optional(Timestamp),
    created_by: Id,
    created_at: Timestamp,
    updated_by: Type.Optional(Id),
    updated_at: Timestamp,
  },
  { $id: 'Rule', description: 'Rule: a source, a condition, its shape in time, and actions' },
)
export type RuleView = Static<typeof RuleView>

export const RuleQuery = Type.Object({
  ...pageQuery(),
  name: Type.Optional(Name),
  status: Type.Optional(StatusFilter),
  channel: Type.Optional(
    Type.String({ maxLength: 36, description: 'Reads this channel by id', ...documented({ format: 'uuid' }) }),
  ),
})
export type RuleQuery = Static<typeof RuleQuery>

export const RuleContactView = Type.Object(
  {
    id: Id,
    contact: Type.String({ description: 'Email address, or URL of a webhook' }),
    status: Type.Enum(['active', 'pending'], { description: '`pending` until the email address is confirmed' }),
    pending: Type.Integer({ description: 'Notifications that wait for delivery, at most 10,000 are counted' }),
    dead_letters: Type.Integer({ description: 'Those that were given up, at most 10,000 are counted' }),
    signing_secret: Type.Optional(
      Type.String({ ...SECRET, description: 'Key of the signature of webhook requests; only for a webhook' }),
    ),
    last_error: Type.Optional(
      Type.Object(
        { at: Timestamp, reason: Type.String(), count: Type.Integer() },
        { description: 'The last failure since the last delivery, and the number of failures since then' },
      ),
    ),
  },
  { $id: 'RuleContact', description: 'To whom a rule sends mails or webhook requests' },
)
export const RuleContactList = Type.Object({ contacts: Type.Array(RuleContactView) })

export const RuleLetterQuery = Type.Object(pageQuery())
export type RuleLetterQuery = Static<typeof RuleLetterQuery>

export const RuleLetterView = Type.Object(
  {
    id: Id,
    contact: Type.String(),
    subject: Type.Optional(Type.String({ description: 'Of a mail' })),
    text: Type.String({ description: 'Text of the mail, or body of the webhook request' }),
    attempts: Type.Integer(),
    error: Type.String({ description: 'Error of the last attempt' }),
    created_at: Timestamp,
    at: Type.String({ format: 'date-time', description: 'When it was given up' }),
  },
  { $id: 'RuleDeadLetter', description: 'A mail or webhook request of a rule that was given up' },
)
export const RuleLetterPage = Type.Object({ ...pageFields, dead_letters: Type.Array(RuleLetterView) })

export function presentContact(contact: RuleContact): Static<typeof RuleContactView> {
  const { id, isConfirmed, pending, deadLetters, lastError, signingSecret } = contact
  return {
    id,
    contact: contact.contact,
    status: isConfirmed ? 'active' : 'pending',
    pending,
    dead_letters: deadLetters,
    ...(signingSecret === undefined ? {} : { signing_secret: signingSecret }),
    ...(lastError === null ? {} : { last_error: { ...lastError, at: formatTime(lastError.at) } }),
  }
}

export function presentLetter(letter: RuleLetter): Static<typeof RuleLetterView> {
  const { payload } = letter
  return {
    id: letter.id,
    contact: letter.contact,
    ...(payload['subject'] === undefined ? {} : { subject: String(payload['subject']) }),
    text: String(payload['text'] ?? payload['body'] ?? ''),
    attempts: letter.attempts,
    error: letter.lastError ?? '',
    created_at: formatTime(letter.createdAt),
    at: formatTime(letter.givenUpAt),
  }
}

export const RulePage = Type.Object({ ...pageFields, rules: Type.Array(RuleView) })

const presentTicks = ({ status, nextTickAt, missedTicks }: RuleRecord) => ({
  ...(nextTickAt === null || status !== 'enabled' ? {} : { next_tick_at: formatTime(nextTickAt) }),
  missed_ticks: missedTicks,
})

export function presentRule(record: RuleRecord, domainId: string): RuleView {
  const { definition, paused, lastError, behindSince, actsAs } = record
  return {
    id: record.id,
    domain_id: domainId,
    name: record.name,
    description: record.description,
    status: record.status,
    source: definition.source,
    condition: definition.condition,
    ...(definition.condition_task === undefined ? {} : { condition_task: definition.condition_task }),
    for: definition.for ?? '0s',
    clear_when: definition.clear_when ?? '',
    clear_for: definition.clear_for ?? '0s',
    cooldown: definition.cooldown ?? '0s',
    severity: definition.severity ?? 'warning',
    window_time: definition.window_time ?? 'arrival',
    actions: definition.actions ?? [{ type: 'alarm' }],
    named: record.named,
    ...(actsAs === null ? {} : { acts_as: actsAs }),
    position: formatPlace(record.place),
    ...(behindSince === null ? {} : { behind_since: formatTime(behindSince) }),
    ...(paused === null ? {} : { paused: { at: formatTime(paused.at), reason: paused.reason } }),
    ...(lastError === null ? {} : { last_error: { ...lastError, at: formatTime(lastError.at) } }),
    seen: record.seen,
    matched: record.matched,
    unmatchable: record.unmatchable,
    raised: record.raised,
    acted: record.acted,
    open_alarms: record.openAlarms,
    ...(definition.source.type === 'schedule' ? presentTicks(record) : {}),
    ...(record.lastMatchAt === null ? {} : { last_match_at: formatTime(record.lastMatchAt) }),
    created_by: record.createdBy,
    created_at: formatTime(record.createdAt),
    ...(record.updatedBy === null ? {} : { updated_by: record.updatedBy }),
    updated_at: formatTime(record.updatedAt),
  }
}

const presentSeries = ({
  clientId,
  clientName,
  channelId,
  channelName,
  subtopic,
  name,
}: Omit<TrialSeries, 'raised' | 'repeated' | 'cleared'>) => ({
  client_id: clientId,
  client_name: clientName,
  channel_id: channelId,
  channel_name: channelName,
  subtopic,
  name,
})

export function presentTrial(result: TrialResult): Static<typeof RuleTrialView> {
  const { fromSeconds, seen, matched, unmatchable, raised, cleared, isComplete, next, reasons } = result
  return {
    from: formatTime(new Date(fromSeconds * 1000)),
    seen,
    matched,
    unmatchable,
    raised,
    cleared,
    is_complete: isComplete,
    next,
    reasons,
    series: result.series.map((one) => ({
      ...presentSeries(one),
      raised: one.raised,
      repeated: one.repeated,
      cleared: one.cleared,
    })),
    events: result.events.flatMap(({ kind, atMs, value, text, cause, ...of }) =>
      kind === 'repeat'
        ? []
        : [{ ...presentSeries(of), at: formatTime(new Date(atMs)), moment: kind, value, text, cause }],
    ),
  }
}
