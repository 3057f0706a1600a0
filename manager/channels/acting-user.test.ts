import { expect, it } from 'vitest'
import { requireActingUser } from './acting-user.ts'

const nobody = { findUser: () => Promise.resolve(undefined) }

it.each([
  [{ userKey: 1, domainId: null }, 'a task of no domain has no channels'],
  [{ userKey: null, domainId: 'a domain' }, 'the user of the task was deleted or disabled'],
  [{ userKey: 1, domainId: 'a domain' }, 'the user of the task was deleted or disabled'],
])('refuses %j with the reason', async (task, message) => {
  await expect(requireActingUser(nobody, task)).rejects.toMatchObject({ kind: 'forbidden', message })
})
