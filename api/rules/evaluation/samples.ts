/** What rules see of a message: each SenML record, and each JSON object, is one sample. */
import { formatPlace } from '#api/consumers/index.ts'
import type { Place } from '#api/consumers/index.ts'
import { JSON_TYPE, SENML_JSON, placeOf } from '#api/messages/index.ts'
import type { LiveMessage } from '#api/messages/index.ts'
import type { SenmlRecord } from '#queues/index.ts'
import type { Severity } from '../alarms/schema.ts'
import { RuleClient } from '../engine/index.ts'
import type { RuleVariables } from '../engine/index.ts'

/** What has a state of its own: a rule has one for each. */
export type Series = {
  /** Empty: a user or a task sent it. */
  publisherId: string
  channelKey: number
  subtopic: string
  /** Empty: a JSON object. */
  name: string
}

/** What has no channel: the silence of a client, or of all of them with the empty id. */
export const seriesOfClient = (publisherId: string): Series => ({ publisherId, channelKey: 0, subtopic: '', name: '' })

/** What a rule is evaluated for. */
export type Evaluated = {
  /** A position, or the number of a change of a state. */
  cause: string
  series: Series
  /** The record of a SenML message. */
  record: SenmlRecord | undefined
  /** When the message arrived. */
  atMs: number
  timeMs: number
  variables: RuleVariables
  /** Empty: it is no message. */
  protocol: string
  /** Number of rules in the chain of causes of the message. */
  depth: number
  /** A function said so; absent: that of the rule. */
  severity?: Severity
}

export type Sample = Evaluated & { message: LiveMessage; place: Place }

export const NO_CLIENT = new RuleClient('', '', [], {})

export const keyOf = ({ publisherId, channelKey, subtopic, name }: Series): string =>
  `${publisherId}\n${channelKey}\n${subtopic}\n${name}`

/** The longest time that JavaScript can represent. */
const MAX_TIME_MS = 8.64e15

/** None for a message that is neither SenML nor JSON. */
export function samplesOf(message: LiveMessage, client: RuleClient): Sample[] {
  const { xid, seq, message: number } = placeOf(message)
  const place = { xid, seq, message: number }
  const common = {
    message,
    place,
    cause: formatPlace(place),
    atMs: message.receivedAtSeconds * 1000,
    protocol: message.protocol,
    depth: message.envelope?.rule?.depth ?? 0,
  }
  const series = { publisherId: message.publisherId, channelKey: message.channelKey, subtopic: message.subtopic }
  const variables = {
    channel: message.channelId,
    subtopic: message.subtopic,
    protocol: message.protocol,
    client,
  }
  if (message.contentType === SENML_JSON)
    return recordsOf(message.payload).map((record) => {
      const timeMs = timeOf(record.t, common.atMs)
      return {
        ...common,
        series: { ...series, name: record.n },
        record,
        timeMs,
        variables: {
          ...variables,
          value: record.v,
          string_value: record.vs,
          bool_value: record.vb,
          name: record.n,
          unit: record.u,
          time: new Date(timeMs),
        },
      }
    })
  if (message.contentType !== JSON_TYPE) return []
  return objectsOf(message.payload).map((json) => ({
    ...common,
    series: { ...series, name: '' },
    record: undefined,
    timeMs: common.atMs,
    variables: { ...variables, time: new Date(common.atMs), json },
  }))
}

function timeOf(seconds: number, arrivalMs: number): number {
  const ms = seconds * 1000
  return Math.abs(ms) <= MAX_TIME_MS ? ms : arrivalMs
}

function recordsOf(payload: Buffer): SenmlRecord[] {
  const records: unknown = JSON.parse(payload.toString('utf8'))
  return Array.isArray(records) ? (records as SenmlRecord[]) : []
}

function objectsOf(payload: Buffer): unknown[] {
  const document: unknown = JSON.parse(payload.toString('utf8'))
  return Array.isArray(document) ? document : [document]
}
