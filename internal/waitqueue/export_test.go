package waitqueue

// TakeNews reports whether a queue has news for its next turn, and removes the news.
func (q *Queues[K]) TakeNews(key K) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	news := q.queues[key].news
	q.queues[key].news = false
	return news
}
