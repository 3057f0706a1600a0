import { ServiceError } from '../errors/index.ts'

/** Throws `malformed` without repeating the address, which may hold a password. */
export function requireRedisUrl(url: string): void {
  if (!URL.canParse(url) || !/^rediss?:$/.test(new URL(url).protocol))
    throw new ServiceError('malformed', 'SKEIN_REDIS_URL must be an address such as redis://user:password@host:6379')
}
