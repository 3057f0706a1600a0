/**
 * Fields of tasks of Propeller, translated to those of Skein: another name, the module in the body, and options that Skein refuses rather
 * than ignores (contract, decision 63).
 */
import { ServiceError, refusedField } from '#core/errors/index.ts'
import { REFUSED, namesOf } from '#older/index.ts'

const MIB = 1024 * 1024
/** Larger modules have a request of their own. */
export const MAX_FILE_BYTES = 8 * MIB
/** The other fields, as in a body without a module. */
const MAX_FIELDS_CHARS = MIB
/** A body with such a module in base64, and room for the other fields. */
export const TASK_BODY_BYTES = 12 * MIB

const WORKER_NAMES = namesOf('manager/tasks/legacy-fields.ts', 'worker_id')

type Legacy = {
  proplet_id?: string
  file?: string
  is_recurring?: boolean
  kind?: string
  mode?: string
  encrypted?: boolean
  kbs_resource_path?: string
  latent?: unknown
}

/**
 * The known fields of the body in those of Skein, and the bytes of its module; a body can have tens of thousands of others. Throws
 * `unprocessable` with the field that Skein refuses.
 */
export function newerFields<Body extends object>(
  body: Body & Legacy & { worker_id?: string | null; broadcast?: boolean | null; schedule?: string | null },
  known: readonly string[],
): { body: Body; file: Uint8Array<ArrayBuffer> | undefined } {
  for (const { older: field, accepted } of REFUSED) {
    const value = body[field]
    if (value === undefined || (accepted as readonly unknown[]).includes(value)) continue
    const message = `is not supported${field === 'kind' || field === 'mode' ? `: ${JSON.stringify(value)}` : ''}`
    throw new ServiceError('unprocessable', `${field} ${message}`, { details: [{ path: `/${field}`, message }] })
  }
  if (body.is_recurring === true && (body.schedule ?? '') === '')
    throw refusedField('/schedule', 'is required with is_recurring')
  const worker = WORKER_NAMES.map((name) => body[name]).find((id) => id !== undefined && id !== null)
  if (body.broadcast === true && worker !== undefined && worker !== '')
    throw refusedField('/broadcast', 'must not be true for a task of one worker')
  const { file = '' } = body
  const given: Record<string, unknown> = worker === undefined ? {} : { worker_id: worker }
  for (const name of known) {
    const value = (body as Record<string, unknown>)[name]
    if (value !== undefined && name !== 'file') given[name] ??= value
  }
  const fields = given as Body
  if (JSON.stringify(fields).length > MAX_FIELDS_CHARS)
    throw new ServiceError('too_large', `a task must have at most ${MAX_FIELDS_CHARS} characters without its file`)
  return { body: fields, file: file === '' ? undefined : fileOf(file) }
}

const BASE64 = /^[A-Za-z0-9+/]*={0,2}$/

function fileOf(text: string): Uint8Array<ArrayBuffer> {
  if (text.length % 4 !== 0 || !BASE64.test(text)) throw refusedField('/file', 'must be base64')
  const bytes = Buffer.from(text, 'base64')
  if (bytes.length > MAX_FILE_BYTES)
    throw new ServiceError(
      'too_large',
      `file must have at most ${MAX_FILE_BYTES} bytes: use PUT /tasks/{task_id}/upload for a larger module`,
    )
  // A buffer of its own, which validation takes over.
  return new Uint8Array(bytes)
}
