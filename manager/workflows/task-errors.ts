/** Errors of one task of a workflow. */
import { ServiceError, fieldName } from '#core/errors/index.ts'

/** The error with the index of the task in the paths of its fields. Errors of no field are unchanged. */
export function errorOfTask(index: number, error: unknown): unknown {
  if (!(error instanceof ServiceError) || error.details === undefined) return error
  const [first, ...others] = error.details.map(({ path, message }) => ({ path: `/tasks/${index}${path}`, message }))
  if (first === undefined) return error
  const message = `${fieldName(first.path)} ${first.message}`
  return new ServiceError(error.kind, message, { cause: error, details: [first, ...others] })
}
