/** Syntax of usernames, emails and pictures (contract section 5), for every route that sets one. */
import { ServiceError } from '#core/errors/index.ts'
import { isMailAddress } from '../mail/index.ts'

const USERNAME = /^(?!.*(?:__|--))[A-Za-z0-9][A-Za-z0-9_-]{0,31}$/

function refusal(path: string, name: string, message: string): ServiceError {
  return new ServiceError('malformed', `${name} ${message}`, { details: [{ path, message }] })
}

export function requireUsername(username: string, path = '/credentials/username'): string {
  if (!USERNAME.test(username)) {
    throw refusal(
      path,
      'username',
      'must contain 1 to 32 letters, digits, _ or -, begin with a letter or digit, and not contain __ or --',
    )
  }
  return username
}

export function requireEmail(email: string): string {
  if (!isMailAddress(email)) throw refusal('/email', 'email', 'must be an email address')
  return email
}

/** Pages display it, so it must be an http or https URL and not a script. Empty means no picture. */
export function requirePicture(url: string): string | null {
  if (url === '') return null
  const parsed = URL.canParse(url) ? new URL(url) : undefined
  if (parsed === undefined || !['http:', 'https:'].includes(parsed.protocol))
    throw refusal('/profile_picture', 'profile_picture', 'must be an http or https URL')
  return url
}
