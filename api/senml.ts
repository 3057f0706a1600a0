/** SenML as channels pass it to tasks, without the rest of the platform. */
import { encodeRecords, parseJson, resolvePack } from '#api/messages/senml/index.ts'

/** The records of a pack in JSON, resolved, with the field names of SenML. Throws `malformed` for an invalid pack. */
export function resolveJsonPack(body: Uint8Array, receivedAtSeconds: number): { n: string; t: number }[] {
  const records = resolvePack(parseJson(body), receivedAtSeconds)
  return JSON.parse(encodeRecords(records).toString()) as { n: string; t: number }[]
}
