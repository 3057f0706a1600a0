/** Failures of a command. The texts are shown to the user unchanged, so each says what to do next. */

/** Wrong words or a wrong number of arguments: exit code 2. */
export class UsageError extends Error {
  override readonly name = 'UsageError'
  /** The usage line of the recognized command. */
  readonly usage: string | undefined

  constructor(message: string, usage?: string) {
    super(message)
    this.usage = usage
  }
}

/** The command was valid and failed: exit code 1. */
export class CommandError extends Error {
  override readonly name = 'CommandError'
  /** A remedy, on a line of its own. */
  readonly hint: string | undefined

  constructor(message: string, hint?: string, options?: { cause?: unknown }) {
    super(message, options)
    this.hint = hint
  }
}

/** The server answered with a failure. */
export class RefusedError extends CommandError {
  readonly status: number
  readonly details: readonly { path: string; message: string }[]

  constructor(
    status: number,
    message: string,
    details: readonly { path: string; message: string }[] = [],
    hint?: string,
  ) {
    super(message, hint)
    this.status = status
    this.details = details
  }
}

/** The user interrupted the command (Ctrl-C). */
export class InterruptedError extends CommandError {}
