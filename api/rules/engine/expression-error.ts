/** The error of an expression or a template that cannot be stored: where the fault is, and what would be accepted. */
import { ServiceError, fieldName } from '#core/errors/index.ts'

export class ExpressionError extends ServiceError {
  /** Both begin with 1; a column is a UTF-16 code unit of its line. */
  readonly line: number
  readonly column: number
  /** The fault without its place. */
  readonly sentence: string

  /** `path` is the field with the expression, such as `/condition`; `at` is an offset in the source. */
  constructor(path: string, source: string, at: number, sentence: string) {
    const before = source.slice(0, at).split('\n')
    const line = before.length
    const column = (before.at(-1) ?? '').length + 1
    const message = `is invalid at line ${line}, column ${column}: ${sentence}`
    super('malformed', `${fieldName(path)} ${message}`, { details: [{ path, message }] })
    this.line = line
    this.column = column
    this.sentence = sentence
  }
}

/** An expression that has no result for a record: a field is absent, a value has another type, or the work exceeds the limit. */
export class EvaluationFailure extends Error {
  constructor(message: string) {
    super(message)
    this.name = 'EvaluationFailure'
  }
}
