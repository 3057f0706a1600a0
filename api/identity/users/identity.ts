/** What a username and an email may look like (contract section 5). The same rules on every path that sets one. */
import { ServiceError } from '#core/errors/index.ts'

const USERNAME = /^[A-Za-z0-9](?:[A-Za-z0-9]|[_-](?![_-])){0,31}$/
/** One @, something before it, a host with a dot or a single label after it; no spaces. Delivery is the real test. */
const EMAIL = /^[^\s@<>()[\],;:\\"]{1,64}@[A-Za-z0-9](?:[A-Za-z0-9.-]{0,250}[A-Za-z0-9])?$/

function refusal(path: string, name: string, message: string): ServiceError {
  return new ServiceError('malformed', `${name} ${message}`, { details: [{ path, message }] })
}

export function requireUsername(username: string): string {
  if (!USERNAME.test(username)) {
    throw refusal(
      '/credentials/username',
      'username',
      'must have 1 to 32 letters, digits, single _ or -, and begin with a letter or digit',
    )
  }
  return username
}

export function requireEmail(email: string): string {
  if (!EMAIL.test(email) || email.includes('..')) throw refusal('/email', 'email', 'must be an email address')
  return email
}
