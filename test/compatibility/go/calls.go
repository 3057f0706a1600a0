package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"github.com/absmach/supermq/pkg/sdk"
)

const (
	secret      = "12345678"
	otherSecret = "87654321"
	readAction  = "read"
	otherAction = "update"
)

func fresh(name string) string {
	bytes := make([]byte, 4)
	_, _ = rand.Read(bytes)
	return name + "-" + hex.EncodeToString(bytes)
}

// wants is the error of a result that is not what a user of the client expects; an error of the call comes first.
func wants(err error, holds bool, what string) error {
	if err != nil {
		return err
	}
	if !holds {
		return errors.New("the result has not the expected " + what)
	}
	return nil
}

// callAll calls the methods in an order in which each finds what it needs, and reports each.
func callAll(mg sdk.SDK, username, password, mails string, report func(name string, err error)) {
	ctx := context.Background()
	page := sdk.PageMetadata{Offset: 0, Limit: 10}

	login := func(user, word string) sdk.Token {
		token, err := mg.CreateToken(ctx, sdk.Login{Username: user, Password: word})
		report("CreateToken", wants(asError(err), token.AccessToken != "", "token"))
		return token
	}
	token := login(username, password).AccessToken

	// Users
	bobName := fresh("bob")
	newUser := func(name string) sdk.User {
		return sdk.User{FirstName: name, LastName: "tester", Email: name + "@example.com",
			Credentials: sdk.Credentials{Username: name, Secret: secret}, Metadata: sdk.Metadata{"made": "by a client"}}
	}
	bob, err := mg.CreateUser(ctx, newUser(bobName), token)
	report("CreateUser", wants(asError(err), bob.ID != "", "id"))
	bobTokens := login(bobName, secret)
	renewed, err := mg.RefreshToken(ctx, bobTokens.RefreshToken)
	report("RefreshToken", wants(asError(err), renewed.AccessToken != "", "token"))
	bobToken := renewed.AccessToken
	user, err := mg.User(ctx, bob.ID, token)
	report("User", wants(asError(err), user.ID == bob.ID, "id"))
	user, err = mg.UserProfile(ctx, bobToken)
	report("UserProfile", wants(asError(err), user.ID == bob.ID, "id"))
	users, err := mg.Users(ctx, page, token)
	report("Users", wants(asError(err), len(users.Users) > 0, "users"))
	users, err = mg.SearchUsers(ctx, sdk.PageMetadata{Limit: 10, Username: bobName[:6]}, bobToken)
	report("SearchUsers", wants(asError(err), len(users.Users) > 0, "users"))
	user, err = mg.UpdateUser(ctx, sdk.User{ID: bob.ID, FirstName: "robert", Metadata: sdk.Metadata{"a": 1}}, token)
	report("UpdateUser", wants(asError(err), user.FirstName == "robert", "name"))
	user, err = mg.UpdateUserTags(ctx, sdk.User{ID: bob.ID, Tags: []string{"x", "y"}}, token)
	report("UpdateUserTags", wants(asError(err), len(user.Tags) == 2, "tags"))
	bobName += "2"
	user, err = mg.UpdateUsername(ctx, sdk.User{ID: bob.ID, Credentials: sdk.Credentials{Username: bobName}}, token)
	report("UpdateUsername", wants(asError(err), user.Credentials.Username == bobName, "username"))
	user, err = mg.UpdateProfilePicture(ctx, sdk.User{ID: bob.ID, ProfilePicture: "https://example.com/bob.png"}, token)
	report("UpdateProfilePicture", wants(asError(err), user.ProfilePicture != "", "picture"))
	for _, role := range []string{"admin", "user"} {
		user, err = mg.UpdateUserRole(ctx, sdk.User{ID: bob.ID, Role: role}, token)
		report("UpdateUserRole", wants(asError(err), user.Role == role, "role"))
	}
	bobMail := fresh("bob") + "@example.com"
	user, err = mg.UpdateUserEmail(ctx, sdk.User{ID: bob.ID, Email: bobMail}, token)
	report("UpdateUserEmail", wants(asError(err), user.Email == bobMail, "email"))
	user, err = mg.UpdatePassword(ctx, secret, otherSecret, bobToken)
	report("UpdatePassword", wants(asError(err), user.ID == bob.ID, "id"))
	user, err = mg.DisableUser(ctx, bob.ID, token)
	report("DisableUser", wants(asError(err), user.Status == "disabled", "status"))
	user, err = mg.EnableUser(ctx, bob.ID, token)
	report("EnableUser", wants(asError(err), user.Status == "enabled", "status"))
	// A change of the password and disabling end sessions.
	bobToken = login(bobName, otherSecret).AccessToken
	eve, err := mg.CreateUser(ctx, newUser(fresh("eve")), token)
	report("CreateUser", wants(asError(err), eve.ID != "", "id"))
	report("ResetPasswordRequest", asError(mg.ResetPasswordRequest(ctx, eve.Email)))
	report("ResetPassword", asError(mg.ResetPassword(ctx, otherSecret, otherSecret, tokenOfMail(mails, eve.Email))))

	// Domains
	domain, err := mg.CreateDomain(ctx, sdk.Domain{Name: "home", Route: fresh("home"), Tags: []string{"x"}}, token)
	report("CreateDomain", wants(asError(err), domain.ID != "", "id"))
	read, err := mg.Domain(ctx, domain.ID, token)
	report("Domain", wants(asError(err), read.ID == domain.ID, "id"))
	domains, err := mg.Domains(ctx, page, token)
	report("Domains", wants(asError(err), len(domains.Domains) > 0, "domains"))
	read, err = mg.UpdateDomain(ctx, sdk.Domain{ID: domain.ID, Name: "house"}, token)
	report("UpdateDomain", wants(asError(err), read.Name == "house", "name"))
	report("DisableDomain", asError(mg.DisableDomain(ctx, domain.ID, token)))
	report("EnableDomain", asError(mg.EnableDomain(ctx, domain.ID, token)))

	// Groups
	newGroup := func(name string) sdk.Group {
		group, err := mg.CreateGroup(ctx, sdk.Group{Name: name, Description: "d"}, domain.ID, token)
		report("CreateGroup", wants(asError(err), group.ID != "", "id"))
		return group
	}
	group, room := newGroup("floor"), newGroup("room")
	gotGroup, err := mg.Group(ctx, group.ID, domain.ID, token)
	report("Group", wants(asError(err), gotGroup.ID == group.ID, "id"))
	groups, err := mg.Groups(ctx, page, domain.ID, token)
	report("Groups", wants(asError(err), len(groups.Groups) == 2, "groups"))
	gotGroup, err = mg.UpdateGroup(ctx, sdk.Group{ID: group.ID, Name: "ground", Description: "e"}, domain.ID, token)
	report("UpdateGroup", wants(asError(err), gotGroup.Name == "ground", "name"))
	gotGroup, err = mg.UpdateGroupTags(ctx, sdk.Group{ID: group.ID, Tags: []string{"x"}}, domain.ID, token)
	report("UpdateGroupTags", wants(asError(err), len(gotGroup.Tags) == 1, "tags"))
	gotGroup, err = mg.DisableGroup(ctx, group.ID, domain.ID, token)
	report("DisableGroup", wants(asError(err), gotGroup.Status == "disabled", "status"))
	gotGroup, err = mg.EnableGroup(ctx, group.ID, domain.ID, token)
	report("EnableGroup", wants(asError(err), gotGroup.Status == "enabled", "status"))
	report("SetGroupParent", asError(mg.SetGroupParent(ctx, room.ID, domain.ID, group.ID, token)))
	hierarchy, err := mg.Hierarchy(ctx, group.ID, domain.ID, sdk.PageMetadata{Level: 2}, token)
	report("Hierarchy", wants(asError(err), len(hierarchy.Groups) > 0, "groups"))
	groups, err = mg.Children(ctx, group.ID, domain.ID, page, token)
	report("Children", wants(asError(err), len(groups.Groups) == 1, "groups"))
	report("RemoveGroupParent", asError(mg.RemoveGroupParent(ctx, room.ID, domain.ID, group.ID, token)))
	report("AddChildren", asError(mg.AddChildren(ctx, group.ID, domain.ID, []string{room.ID}, token)))
	report("RemoveChildren", asError(mg.RemoveChildren(ctx, group.ID, domain.ID, []string{room.ID}, token)))
	report("AddChildren", asError(mg.AddChildren(ctx, group.ID, domain.ID, []string{room.ID}, token)))
	report("RemoveAllChildren", asError(mg.RemoveAllChildren(ctx, group.ID, domain.ID, token)))

	// Clients
	client, err := mg.CreateClient(ctx, sdk.Client{Name: "sensor", Tags: []string{"x"}}, domain.ID, token)
	report("CreateClient", wants(asError(err), client.ID != "" && client.Credentials.Secret != "", "id and secret"))
	spares, err := mg.CreateClients(ctx, []sdk.Client{{Name: "one"}, {Name: "two"}}, domain.ID, token)
	report("CreateClients", wants(asError(err), len(spares) == 2, "clients"))
	gotClient, err := mg.Client(ctx, client.ID, domain.ID, token)
	report("Client", wants(asError(err), gotClient.ID == client.ID, "id"))
	clients, err := mg.Clients(ctx, page, domain.ID, token)
	report("Clients", wants(asError(err), len(clients.Clients) == 3, "clients"))
	gotClient, err = mg.UpdateClient(ctx, sdk.Client{ID: client.ID, Name: "thermometer"}, domain.ID, token)
	report("UpdateClient", wants(asError(err), gotClient.Name == "thermometer", "name"))
	gotClient, err = mg.UpdateClientTags(ctx, sdk.Client{ID: client.ID, Tags: []string{"y"}}, domain.ID, token)
	report("UpdateClientTags", wants(asError(err), slices.Equal(gotClient.Tags, []string{"y"}), "tags"))
	gotClient, err = mg.UpdateClientSecret(ctx, client.ID, fresh("secret-of-the-client"), domain.ID, token)
	report("UpdateClientSecret", wants(asError(err), gotClient.Credentials.Secret != "", "secret"))
	clientSecret := gotClient.Credentials.Secret
	gotClient, err = mg.DisableClient(ctx, client.ID, domain.ID, token)
	report("DisableClient", wants(asError(err), gotClient.Status == "disabled", "status"))
	gotClient, err = mg.EnableClient(ctx, client.ID, domain.ID, token)
	report("EnableClient", wants(asError(err), gotClient.Status == "enabled", "status"))
	report("SetClientParent", asError(mg.SetClientParent(ctx, client.ID, domain.ID, group.ID, token)))
	report("RemoveClientParent", asError(mg.RemoveClientParent(ctx, client.ID, domain.ID, group.ID, token)))

	// Channels
	channel, err := mg.CreateChannel(ctx, sdk.Channel{Name: "climate", Tags: []string{"x"}}, domain.ID, token)
	report("CreateChannel", wants(asError(err), channel.ID != "", "id"))
	more, err := mg.CreateChannels(ctx, []sdk.Channel{{Name: "one"}, {Name: "two"}}, domain.ID, token)
	report("CreateChannels", wants(asError(err), len(more) == 2, "channels"))
	gotChannel, err := mg.Channel(ctx, channel.ID, domain.ID, token)
	report("Channel", wants(asError(err), gotChannel.ID == channel.ID, "id"))
	channels, err := mg.Channels(ctx, page, domain.ID, token)
	report("Channels", wants(asError(err), len(channels.Channels) == 3, "channels"))
	gotChannel, err = mg.UpdateChannel(ctx, sdk.Channel{ID: channel.ID, Name: "weather"}, domain.ID, token)
	report("UpdateChannel", wants(asError(err), gotChannel.Name == "weather", "name"))
	gotChannel, err = mg.UpdateChannelTags(ctx, sdk.Channel{ID: channel.ID, Tags: []string{"y"}}, domain.ID, token)
	report("UpdateChannelTags", wants(asError(err), slices.Equal(gotChannel.Tags, []string{"y"}), "tags"))
	gotChannel, err = mg.DisableChannel(ctx, channel.ID, domain.ID, token)
	report("DisableChannel", wants(asError(err), gotChannel.Status == "disabled", "status"))
	gotChannel, err = mg.EnableChannel(ctx, channel.ID, domain.ID, token)
	report("EnableChannel", wants(asError(err), gotChannel.Status == "enabled", "status"))
	report("SetChannelParent", asError(mg.SetChannelParent(ctx, channel.ID, domain.ID, group.ID, token)))
	report("RemoveChannelParent", asError(mg.RemoveChannelParent(ctx, channel.ID, domain.ID, group.ID, token)))
	types := []string{"publish", "subscribe"}
	report("ConnectClients", asError(mg.ConnectClients(ctx, channel.ID, []string{client.ID}, types, domain.ID, token)))
	report("DisconnectClients", asError(mg.DisconnectClients(ctx, channel.ID, []string{client.ID}, types, domain.ID, token)))
	connection := sdk.Connection{ClientIDs: []string{client.ID}, ChannelIDs: []string{channel.ID}, Types: types}
	report("Connect", asError(mg.Connect(ctx, connection, domain.ID, token)))
	report("SetContentType", asError(mg.SetContentType(sdk.CTJSONSenML)))
	report("SendMessage", asError(mg.SendMessage(ctx, domain.ID, channel.ID, `[{"bn":"sensor:","n":"t","u":"Cel","v":21.5}]`, clientSecret)))
	report("Disconnect", asError(mg.Disconnect(ctx, connection, domain.ID, token)))

	// Invitations
	guests, err := mg.CreateDomainRole(ctx, domain.ID, sdk.RoleReq{RoleName: "guest", OptionalActions: []string{readAction}}, token)
	report("CreateDomainRole", wants(asError(err), guests.ID != "", "id"))
	invite := func(user string) {
		report("SendInvitation", mg.SendInvitation(ctx, sdk.Invitation{InviteeUserID: user, DomainID: domain.ID, RoleID: guests.ID}, token))
	}
	invite(bob.ID)
	invitation, failed := mg.Invitation(ctx, bob.ID, domain.ID, token)
	report("Invitation", wants(failed, invitation.InviteeUserID == bob.ID, "invitee"))
	invitations, failed := mg.Invitations(ctx, page, bobToken)
	report("Invitations", wants(failed, len(invitations.Invitations) == 1, "invitations"))
	invitations, failed = mg.DomainInvitations(ctx, page, token, domain.ID)
	report("DomainInvitations", wants(failed, len(invitations.Invitations) == 1, "invitations"))
	report("RejectInvitation", mg.RejectInvitation(ctx, domain.ID, bobToken))
	report("SendInvitation", mg.SendInvitation(ctx, sdk.Invitation{InviteeUserID: bob.ID, DomainID: domain.ID, RoleID: guests.ID, Resend: true}, token))
	report("AcceptInvitation", mg.AcceptInvitation(ctx, domain.ID, bobToken))
	invite(eve.ID)
	report("DeleteInvitation", mg.DeleteInvitation(ctx, eve.ID, domain.ID, token))

	for _, entity := range rolesOf(mg, token, domain.ID, client.ID, group.ID) {
		callRoles(entity, bob.ID, report)
	}

	members, err := mg.ListChannelMembers(ctx, channel.ID, domain.ID, page, token)
	report("ListChannelMembers", wants(asError(err), len(members.Members) > 0, "members"))

	// Certificates
	issue := func() sdk.Cert {
		cert, err := mg.IssueCert(ctx, client.ID, "10h", domain.ID, token)
		report("IssueCert", wants(asError(err), cert.SerialNumber != "", "serial number"))
		return cert
	}
	cert := issue()
	serials, err := mg.ViewCertByClient(ctx, client.ID, domain.ID, token)
	report("ViewCertByClient", wants(asError(err), len(serials.Certs) == 1, "certificates"))
	viewed, err := mg.ViewCert(ctx, cert.SerialNumber, domain.ID, token)
	report("ViewCert", wants(asError(err), viewed.Certificate != "", "certificate"))
	revoked, err := mg.RevokeCert(ctx, cert.SerialNumber, domain.ID, token)
	report("RevokeCert", wants(asError(err), !revoked.IsZero(), "time"))
	issue()
	revoked, err = mg.RevokeAllCerts(ctx, client.ID, domain.ID, token)
	report("RevokeAllCerts", wants(asError(err), !revoked.IsZero(), "time"))

	// The rest
	journals, failed := mg.Journal(ctx, "client", client.ID, domain.ID, page, token)
	report("Journal", wants(failed, len(journals.Journals) > 0, "journals"))
	for _, service := range []string{"clients", "users", "certs", "http-adapter"} {
		health, err := mg.Health(service)
		report("Health", wants(asError(err), health.Status == "pass", "status of "+service))
	}

	report("DeleteClient", asError(mg.DeleteClient(ctx, client.ID, domain.ID, token)))
	report("DeleteChannel", asError(mg.DeleteChannel(ctx, channel.ID, domain.ID, token)))
	report("DeleteGroup", asError(mg.DeleteGroup(ctx, group.ID, domain.ID, token)))
	report("FreezeDomain", asError(mg.FreezeDomain(ctx, domain.ID, token)))
	report("DeleteUser", asError(mg.DeleteUser(ctx, eve.ID, token)))
}

// asError is the error of a call, or nil: an interface that holds no error is not nil by itself.
func asError(err interface{ Error() string }) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s", err.Error())
}
