/** What is wrong with a response, measured by openapi.json: its status, its content type, its body, and the form of its errors. */
import { PROTOCOL_STATUS } from '#core/errors/index.ts'
import type { ErrorKind } from '#core/errors/index.ts'
import type { Operation } from './document.ts'

export type Received = { status: number; contentType: string; text: string }

const TRACE = /\bat .+\.ts:\d+|node_modules|\bSELECT\b.+\bFROM\b|violates|ECONNREFUSED/
/** They ask the module proxy for what a registry has. The tests have neither. */
const ASKS_OTHERS = new Set(['POST /modules', 'PUT /modules'])

export function faultsOfAnswer(operation: Operation, { status, contentType, text }: Received): string[] {
  const faults: string[] = []
  const declared = operation.answers.get(status)
  if (status >= 500 && !(status === 503 && ASKS_OTHERS.has(operation.name))) faults.push(`${status} is a fault of ours`)
  if (declared === undefined) return [...faults, `${status} is not declared`]
  if (TRACE.test(text) && status >= 400) faults.push('shows our insides')
  if (declared.contentTypes === undefined) {
    if (text !== '') faults.push('the body should be empty')
    return faults
  }
  if (!declared.contentTypes.some((type) => contentType.startsWith(type)))
    faults.push(`the content type is ${contentType}`)
  if (!contentType.startsWith('application/json')) return faults
  const body = parsed(text)
  if (body === undefined) return [...faults, 'the body is no JSON']
  faults.push(...declared.faultsOf(body))
  if (status >= 400) faults.push(...faultsOfError(body as Record<string, unknown>, status))
  return faults
}

/** Decision 44. */
function faultsOfError(body: Record<string, unknown>, status: number): string[] {
  const { error, message } = body
  const faults: string[] = []
  // The Iceberg catalogue, whose errors have the form of its specification: the schema has checked the rest.
  if (typeof error === 'object' && error !== null && 'code' in error)
    return error.code === status ? [] : [`the code ${String(error.code)} is not ${status}`]
  if (PROTOCOL_STATUS[error as ErrorKind]?.http !== status) faults.push(`the kind ${String(error)} is not ${status}`)
  if (typeof message !== 'string' || message === '') faults.push('no message')
  return faults
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}
