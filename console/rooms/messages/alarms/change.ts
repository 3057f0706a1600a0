/** Changes of an alarm. */
import { call } from '../../../api/call.ts'
import type { Alarm, AlarmUpdate } from '../../../api/operations.ts'

/** Absent fields are unchanged. */
export async function changeAlarm(domain: string, id: string, body: AlarmUpdate): Promise<Alarm> {
  return await call('PATCH /{domain_id}/alarms/{alarm_id}', { params: { domain_id: domain, alarm_id: id }, body })
}
