package posthorn

// News returns a channel that receives whenever something may have been
// published, in any namespace of the database, and what ends that. News that
// nobody waits for is kept, once. It promises nothing: look by yourself now and
// then, too. It is for programs that wait for events on behalf of many others;
// whoever waits for itself calls [Group.Fetch] or [Client.Listen].
func (c *Client) News() (news <-chan struct{}, end func()) {
	news, unsubscribe := c.watch.Subscribe()
	enough := c.watch.KeepRunning()
	return news, func() { unsubscribe(); enough() }
}
