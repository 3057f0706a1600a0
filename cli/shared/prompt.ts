/** Questions on the terminal, and lines from a pipe. */
import { createInterface } from 'node:readline'
import { Writable } from 'node:stream'
import { CommandError, InterruptedError } from './failures.ts'
import { forTerminal } from './plain-text.ts'

/** Asks on standard error, so that standard output contains only data; the input of a secret is not shown. */
export async function ask(text: string, { isSecret }: { isSecret: boolean }, signal: AbortSignal): Promise<string> {
  const question = forTerminal(text)
  if (!process.stdin.isTTY)
    throw new CommandError(
      `no terminal to ask for the ${question.replace(': ', '')}`,
      'use skein login USERNAME --password-stdin, or SKEIN_PASSWORD',
    )
  const echo = new Writable({
    write(chunk: Buffer, _encoding, done) {
      if (!isSecret) process.stderr.write(chunk)
      done()
    },
  })
  // From here the terminal does not echo; readline does, and discards the echo of a secret. The question comes
  // afterwards, so that an immediate answer is not shown either.
  const lines = createInterface({
    input: process.stdin,
    output: echo,
    terminal: true,
    historySize: 0,
    prompt: question,
  })
  if (isSecret) process.stderr.write(question)
  else lines.prompt()
  try {
    return await new Promise<string>((resolve, reject) => {
      const stop = () => reject(new InterruptedError('interrupted'))
      lines.once('line', resolve)
      lines.once('SIGINT', stop)
      lines.once('close', stop)
      signal.addEventListener('abort', stop, { once: true })
    })
  } finally {
    lines.close()
    if (isSecret) process.stderr.write('\n')
  }
}

/** The first line of standard input. */
export async function readLine(): Promise<string> {
  const lines = createInterface({ input: process.stdin })
  for await (const line of lines) return line
  return ''
}
