/** Requests for the documents of a device. The document without a name has an address of its own. */
import type { UseQueryOptions } from '@tanstack/react-query'
import { call } from '../../../api/call.ts'
import { ApiError } from '../../../api/errors.ts'
import { formatJson } from '../../../api/json.ts'
import type { DeviceState } from '../../../api/operations.ts'
import { query } from '../../../api/queries.ts'
import type { Document } from './fields.ts'

const CHANGED_MEANWHILE = 412
/** Reports of the device raise the version too: so often is a change of what is desired sent again after them. */
const MAX_REPORTS = 5

export type Place = { readonly domain: string; readonly client: string; readonly name: string }

const paramsOf = ({ domain, client }: Place) => ({ domain_id: domain, client_id: client })

export function documentQuery(place: Place): UseQueryOptions<DeviceState> {
  const params = paramsOf(place)
  const { name } = place
  return (
    name === ''
      ? query('GET /{domain_id}/clients/{client_id}/desired-state', { params })
      : query('GET /{domain_id}/clients/{client_id}/desired-state/{name}', { params: { ...params, name } })
  ) as UseQueryOptions<DeviceState>
}

/** Another user changed what is desired. */
export class Conflict extends Error {
  readonly current: DeviceState

  constructor(current: DeviceState) {
    super('what is desired was changed meanwhile')
    this.current = current
  }
}

async function put(place: Place, body: Document, version: number): Promise<void> {
  const params = paramsOf(place)
  const { name } = place
  const headers = { 'If-Match': String(version) }
  if (name === '') await call('PUT /{domain_id}/clients/{client_id}/desired-state', { params, body, headers })
  else
    await call('PUT /{domain_id}/clients/{client_id}/desired-state/{name}', {
      params: { ...params, name },
      body,
      headers,
    })
}

/** Replaces what is desired, which was `base` when the user began. Throws `Conflict` when it is not that any more. */
export async function replaceDesired(
  place: Place,
  body: Document,
  base: Pick<DeviceState, 'desired' | 'version'>,
): Promise<void> {
  let { version } = base
  for (let reports = 0; ; reports++)
    try {
      // oxlint-disable-next-line no-await-in-loop -- the next version is that of the refusal
      return await put(place, body, version)
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== CHANGED_MEANWHILE) throw error
      const current = error.current as DeviceState
      if (formatJson(current.desired) !== formatJson(base.desired)) throw new Conflict(current)
      if (reports === MAX_REPORTS) throw error
      ;({ version } = current)
    }
}

export async function deleteDocument(place: Place): Promise<void> {
  const params = paramsOf(place)
  const { name } = place
  if (name === '') await call('DELETE /{domain_id}/clients/{client_id}/desired-state', { params })
  else await call('DELETE /{domain_id}/clients/{client_id}/desired-state/{name}', { params: { ...params, name } })
}
