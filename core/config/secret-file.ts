/** A secret in a file, as systemd's credentials, Docker and Kubernetes hand one over: in no environment, and on no command line. */
import { closeSync, openSync, readSync } from 'node:fs'

/** Longer than any secret, so that a wrong path costs no memory. */
const MAX_BYTES = 64 * 1024

/** The text without the line end after it. Throws an Error whose message ends the sentence `NAME must be …`. */
export function readSecretFile(path: string): string {
  const wrong = (why: string) => new Error(`the path of a file that holds the secret (${why})`)
  const bytes = Buffer.alloc(MAX_BYTES + 1)
  let length: number
  try {
    const file = openSync(path, 'r')
    try {
      length = readSync(file, bytes)
    } finally {
      closeSync(file)
    }
  } catch (error) {
    throw wrong(String((error as NodeJS.ErrnoException).code))
  }
  if (length > MAX_BYTES) throw wrong(`it has more than ${MAX_BYTES} bytes`)
  const text = bytes.toString('utf8', 0, length).replace(/\r?\n$/, '')
  if (text === '') throw wrong('it is empty')
  return text
}
