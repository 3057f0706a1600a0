/** What the tests of rules and alarms share: short calls, and waits for what rules cause. */
import { newId } from '#core/ids.ts'
import { until } from '../harness/until.ts'
import { expectStatus } from './consumers-support.ts'
import type { Device, Plant } from './support.ts'

export type RuleBody = {
  id: string
  name: string
  status: string
  condition: string
  position: string
  named: { type: string; id: string; name: string }[]
  paused?: { at: string; reason: string }
  last_error?: { reason: string; count: number }
  seen: number
  matched: number
  unmatchable: number
  raised: number
  acted: number
  open_alarms: number
}

export type AlarmBody = {
  id: string
  rule_id: string
  rule_name: string
  client_id?: string
  client_name: string
  channel_name: string
  name: string
  unit: string
  severity: string
  status: string
  value: unknown
  text: string
  count: number
  comments: number
  first_at: string
  last_at: string
  assignee_id?: string
  acknowledged_by?: string
  cleared_at?: string
  cleared_by?: string
}

export async function newRule(plant: Plant, fields: Record<string, unknown>): Promise<RuleBody> {
  const body = { name: `rule-${newId()}`, ...fields }
  return expectStatus(201, await plant.owner.call('POST', `/${plant.domainId}/rules`, body)).json<RuleBody>()
}

export async function showRule(plant: Plant, id: string): Promise<RuleBody> {
  return expectStatus(200, await plant.owner.call('GET', `/${plant.domainId}/rules/${id}`)).json<RuleBody>()
}

export async function alarmsOf(plant: Plant, ruleId: string, query = ''): Promise<AlarmBody[]> {
  const response = await plant.owner.call('GET', `/${plant.domainId}/alarms?rule=${ruleId}&limit=100${query}`)
  return expectStatus(200, response).json<{ alarms: AlarmBody[] }>().alarms
}

export async function sendRecords(
  plant: Plant,
  device: Device,
  channelId: string,
  records: readonly object[],
  subtopic = '',
): Promise<void> {
  const url = `/http/m/${plant.domainId}/c/${channelId}${subtopic === '' ? '' : `/${subtopic}`}`
  const headers = { 'content-type': 'application/senml+json' }
  expectStatus(202, await plant.api.as(`Client ${device.secret}`)('POST', url, JSON.stringify(records), headers))
}

export const sendValue = (plant: Plant, device: Device, channelId: string, v: number, n = 'temperature') =>
  sendRecords(plant, device, channelId, [{ n, u: 'Cel', v }])

/** Waits until the rule was evaluated for as many records. */
export async function untilSeen(plant: Plant, id: string, seen: number): Promise<RuleBody> {
  return await until(async () => {
    const rule = await showRule(plant, id)
    return rule.seen >= seen ? rule : undefined
  }, `the rule has seen ${seen} records`)
}
