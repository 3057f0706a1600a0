import { describe, expect, it } from 'vitest'
import { nobodyAccount } from './account.ts'

describe('the account `nobody`', () => {
  it('is read from /etc/passwd', () => {
    const passwd = 'root:x:0:0:root:/root:/bin/sh\nnobody:x:99:98:Nobody:/:/sbin/nologin\n'
    expect(nobodyAccount(passwd)).toEqual({ uid: 99, gid: 98, isSelf: false })
  })

  it('has the ids of macOS as unsigned numbers', () => {
    const passwd = 'nobody:*:-2:-2:Unprivileged User:/var/empty:/usr/bin/false\n'
    expect(nobodyAccount(passwd)).toEqual({ uid: 4_294_967_294, gid: 4_294_967_294, isSelf: false })
  })

  it('is 65534 when the file is absent or has no such account', () => {
    expect(nobodyAccount('')).toEqual({ uid: 65_534, gid: 65_534, isSelf: false })
    expect(nobodyAccount('nobody4:x:60004:60004::/:/bin/false\n').uid).toBe(65_534)
  })
})
